// SPDX-License-Identifier: Apache-2.0
#pragma once

// JpegDecoder: decodes JPEG files to red, green and blue with libjpeg-turbo, on the calling thread.
// It decodes the rows and columns that a view needs, at the smallest scale that the view allows.
//
//   penstock::images::JpegDecoder decoder;  // one for each worker
//   penstock::images::Resizer resize;
//   const penstock::images::RandomResizedCrop crop{.output = {224, 224}};
//   std::vector<std::uint8_t> pixels(224 * 224 * 3);
//   const penstock::images::ImageSize size = decoder.open(file);  // the bytes of a JPEG file
//   resize(decoder.decode(crop(sample.seed, size)), pixels);
//
// It also accepts binary PPM files, as penstock-pack --raw writes them; they need no decoding. Grey
// becomes RGB. CMYK and YCCK are read as Adobe's programs write them (255 is no ink). Colour
// profiles are ignored.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/images/image_error.hpp>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <span>
#include <stop_token>

namespace penstock::inline PENSTOCK_ABI::images {

/// The settings and limits of a JpegDecoder.
struct JpegOptions {
  /// Turns and mirrors the image according to its EXIF data. torchvision and Pillow do so only on
  /// request.
  bool apply_orientation = false;
  /// Makes damage that libjpeg can work around an ImageError, even after the last row of an image
  /// (such as a missing end marker). An early end of the file always is one.
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

  /// Called every few rows, like the stop token. If it returns true, the decoding ends with
  /// DecodeStopped. It is for programs that end on a signal. It must not throw.
  bool (*interrupted)() = nullptr;
};

/// Decodes JPEG files to pixels on the calling thread. Use each object on one thread at a time. Its
/// memory grows to the need of the largest image so far; for images within that, open() and
/// decode() allocate nothing.
class JpegDecoder {
 public:
  /// Allocates libjpeg's state.
  explicit JpegDecoder(const JpegOptions& options = {});
  JpegDecoder(JpegDecoder&&) noexcept;
  JpegDecoder& operator=(JpegDecoder&&) noexcept;
  ~JpegDecoder();

  /// Reads the header of `file`, which is all bytes of a file and must stay valid until the image
  /// is decoded. Returns the size of the image as it is stored, or with apply_orientation as it is
  /// to be shown. Throws ImageError, also for an image beyond max_pixels.
  ImageSize open(std::span<const std::byte> file);

  /// Decodes what `view` needs of the opened image. `view` has the coordinates of an image of the
  /// size that open() returned. The result is valid until the next call; its view describes the
  /// same output in coordinates of its pixels. May be called more than once for an image.
  ///
  /// The output is computed from the pixels of the whole image, bit for bit, unless scaled_dct
  /// applies. Rows below the view are not read, so damage there is not found.
  ///
  /// Throws ImageError; DecodeStopped if `stop` is requested or `interrupted` returns true, within
  /// a few rows; std::invalid_argument for a view that is empty or not within the image;
  /// std::logic_error if no image is open. Each leaves the decoder ready for the next open().
  Decoded decode(const View& view, const std::stop_token& stop = {});

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
  Pixels raw_;  // pixels of an open file that needs no decoding
};

}  // namespace penstock::images
