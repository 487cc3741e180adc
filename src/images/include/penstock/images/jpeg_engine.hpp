// SPDX-License-Identifier: Apache-2.0
#pragma once

// JpegEngine: the interface of the decoders that HardwareDecoder uses. An engine decodes JPEG
// files, or parts of them, to device memory, many at a time. make_nvjpeg_engine makes one with
// nvJPEG's hardware backend; a program may implement another.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <span>
#include <string>

namespace penstock::inline PENSTOCK_ABI::images {

/// Decodes JPEG files to device memory. Use each object on one thread at a time. An engine is one
/// state of the decoder: it works on one batch at a time.
class JpegEngine {
 public:
  /// A file, and the device memory for a part of its pixels: 3 bytes a pixel, `stride` bytes a row.
  struct Image {
    std::span<const std::byte> file;  ///< all bytes of a JPEG file
    ImageSize size;                   ///< as the file's header says
    Region part;  ///< the part of the image that is wanted; nothing else is written
    std::uint8_t* pixels = nullptr;  ///< device memory: the part's pixel at the top left
    std::int64_t stride = 0;         ///< bytes from one row to the next
  };

  JpegEngine() = default;
  JpegEngine(const JpegEngine&) = delete;
  JpegEngine& operator=(const JpegEngine&) = delete;
  virtual ~JpegEngine() = default;

  /// The name for HardwareDecoder::backend() and messages.
  virtual std::string name() const = 0;
  /// Whether decode() accepts such a file. It reads only the header.
  virtual bool takes(std::span<const std::byte> file) = 0;
  /// Decodes `images` in `stream`, each to red, green and blue. It may block. Files and pixels must
  /// stay unchanged until that work is done; so must the engine, before its next call. Returns
  /// false if one of the images cannot be decoded; it is not known which one, and the pixels of all
  /// are undefined. Throws for errors that no image causes.
  virtual bool decode(std::span<const Image> images, cudaStream_t stream) = 0;
};

/// The sizes for which an engine is prepared.
struct EngineOptions {
  int batch = 256;              ///< largest number of images of a call
  ImageSize image{1024, 1024};  ///< a size that few images exceed: memory is allocated for it
  /// The number of nvJPEG decoders that the engines of a device share: while one ends a batch,
  /// another begins the next. Each decoder uses memory, takes a third of a second to create, and
  /// has 14 streams.
  int decoders = 1;
};

/// Makes an engine for the current device. Returns nullptr if there is none; then the string says
/// why.
using MakeEngine = std::function<std::unique_ptr<JpegEngine>(const EngineOptions&, std::string&)>;

/// Makes an engine with nvJPEG's hardware backend. All engines of a device share options.decoders
/// decoders of nvJPEG, made for the options of the first engine, and take turns. A decoder has 14
/// streams of its own. If the program launches graphs, set CUDA_DEVICE_MAX_CONNECTIONS=32 in its
/// environment, because otherwise images wait for whole graphs. There is no engine over
/// penstock::emulated, on a GPU without JPEG engines, without libnvjpeg.so.13 (with CUDA 12:
/// .so.12), which is loaded at run time, or in a library that was built without nvjpeg.h.
std::unique_ptr<JpegEngine> make_nvjpeg_engine(const EngineOptions& options, std::string& why_not);

}  // namespace penstock::images
