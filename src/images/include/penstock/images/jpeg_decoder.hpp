// SPDX-License-Identifier: Apache-2.0
#pragma once

// JpegDecoder: JPEG files to red, green and blue, by libjpeg-turbo, on the calling thread. It
// decodes the rows and columns that a view needs, at the smallest scale that the view allows.
//
//   penstock::images::JpegDecoder decoder;  // one for each worker
//   penstock::images::Resizer resize;
//   const penstock::images::RandomResizedCrop crop{.output = {224, 224}};
//   std::vector<std::uint8_t> pixels(224 * 224 * 3);
//   const penstock::images::ImageSize size = decoder.open(file);  // the bytes of a JPEG file
//   resize(decoder.decode(crop(sample.seed, size)), pixels);
//
// Binary PPM files, as penstock-pack --raw writes them, are taken as well, and need no decoding.
// Grey becomes RGB. CMYK and YCCK are taken as Adobe's programs write them (255 is no ink). Colour
// profiles are not looked at.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/images/image_error.hpp>
#include <penstock/images/view.hpp>
#include <span>
#include <stop_token>

namespace penstock::images {

/// The settings and limits of a JpegDecoder.
struct JpegOptions {
  /// Turns and mirrors the image as its EXIF data say. torchvision and Pillow do so only if asked.
  bool apply_orientation = false;
  /// Damage that libjpeg can work around is an ImageError, also behind the last row of an image
  /// (an end mark that is missing, too). An early end of the file always is one.
  bool warnings_are_errors = false;
  /// Uses libjpeg's faster and less exact inverse DCT.
  bool fast_dct = false;
  /// Decodes at 1/8, 1/4 or 1/2 of the size if each output pixel is still made of at least one
  /// decoded pixel. Faster; the values then differ from those of an image that was decoded whole
  /// and resized. Off: decoded values are those of the whole image, bit for bit.
  bool scaled_dct = true;

  // Limits: a file beyond one is an ImageError. The first two are checked before memory is taken.
  std::int64_t max_pixels = 178'956'970;  ///< height x width; Pillow's limit
  /// Bytes of coefficients. Only files in several scans (progressive) keep them in memory: 6 bytes
  /// a pixel with colours at full resolution, 3 bytes with colours at half of it in each direction.
  std::int64_t max_coefficient_bytes = std::int64_t{1} << 29;
  int max_scans = 100;      ///< scans of a progressive file; encoders write about ten
  double max_seconds = 60;  ///< CPU time of the thread for one image

  /// Called every few rows, like the stop token: true ends the decoding with DecodeStopped. For
  /// programs that end on a signal. Must not throw.
  bool (*interrupted)() = nullptr;
};

/// Decodes JPEG files to pixels, on the calling thread. One thread at a time. Its memory grows to
/// what the largest image so far needed; for images within that, open() and decode() allocate
/// nothing.
class JpegDecoder {
 public:
  /// Allocates libjpeg's state.
  explicit JpegDecoder(const JpegOptions& options = {});
  JpegDecoder(JpegDecoder&&) noexcept;
  JpegDecoder& operator=(JpegDecoder&&) noexcept;
  ~JpegDecoder();

  /// Reads the header of `file`, which is all bytes of a file and must stay valid until the image
  /// is decoded. Returns the image's size: as it is stored, or as it is to be shown with
  /// apply_orientation. Throws ImageError, also for an image beyond max_pixels.
  ImageSize open(std::span<const std::byte> file);

  /// Decodes what `view` needs of the opened image. `view` has the coordinates of an image of the
  /// size that open() returned. The result is valid until the next call; its view describes the
  /// same output in coordinates of its pixels. May be called more than once for an image.
  ///
  /// The pixels that the output is computed from are those of the whole image, bit for bit, unless
  /// scaled_dct applies. Rows below the view are not read: damage there is not found.
  ///
  /// Throws ImageError; DecodeStopped if `stop` is requested or `interrupted` returns true, within
  /// a few rows; std::invalid_argument for a view that is empty or not within the image;
  /// std::logic_error if no image is open. Each leaves the decoder ready for the next open().
  Decoded decode(const View& view, const std::stop_token& stop = {});

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
  Pixels raw_;  // of an open file that needs no decoding
};

}  // namespace penstock::images
