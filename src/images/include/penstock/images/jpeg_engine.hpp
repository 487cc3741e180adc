// SPDX-License-Identifier: Apache-2.0
#pragma once

// JpegEngine: what stands behind HardwareDecoder. It decodes JPEG files, or parts of them, to
// device memory, many at a time. make_nvjpeg_engine makes one of nvJPEG's hardware backend; a
// program may bring another.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <penstock/images/view.hpp>
#include <span>
#include <string>

namespace penstock::images {

/// Decodes JPEG files to device memory. One thread at a time. An engine is one state of the
/// decoder: it works on one batch at a time.
class JpegEngine {
 public:
  /// A file, and the device memory for a part of its pixels: 3 bytes a pixel, `stride` bytes a row.
  struct Image {
    std::span<const std::byte> file;  ///< all bytes of a JPEG file
    ImageSize size;                   ///< as the file's header says
    Region part;                      ///< of the image: what is wanted, and nothing else is written
    std::uint8_t* pixels = nullptr;   ///< device memory: the part's pixel at the top left
    std::int64_t stride = 0;          ///< bytes from one row to the next
  };

  JpegEngine() = default;
  JpegEngine(const JpegEngine&) = delete;
  JpegEngine& operator=(const JpegEngine&) = delete;
  virtual ~JpegEngine() = default;

  /// For HardwareDecoder::backend() and messages.
  virtual std::string name() const = 0;
  /// Whether decode() takes such a file. Reads the header only.
  virtual bool takes(std::span<const std::byte> file) = 0;
  /// Decodes `images` in `stream`, each to red, green and blue. May block. Files and pixels must
  /// stay as they are until that work is done; so must the engine, before its next call. False: one
  /// of the images cannot be decoded, it is not known which, and the pixels of all are undefined.
  /// Throws what is no image's fault.
  virtual bool decode(std::span<const Image> images, cudaStream_t stream) = 0;
};

/// What to prepare an engine for.
struct EngineOptions {
  int batch = 256;              ///< most images of a call
  ImageSize image{1024, 1024};  ///< a size that few images exceed: memory is allocated for it
  /// Decoders of nvJPEG that the engines of a device share: while one ends a batch, another begins
  /// the next. Each takes memory, a third of a second to make, and has 14 streams.
  int decoders = 1;
};

/// Makes an engine for the current device. nullptr: there is none, and the string says why.
using MakeEngine = std::function<std::unique_ptr<JpegEngine>(const EngineOptions&, std::string&)>;

/// An engine of nvJPEG's hardware backend. All engines of a device share options.decoders decoders
/// of nvJPEG, made for the options of the first engine, and take turns. A decoder has 14 streams of
/// its own: where the program launches graphs, set CUDA_DEVICE_MAX_CONNECTIONS=32 in its
/// environment, or images wait for whole graphs. There is no engine over penstock::emulated, on a
/// GPU without JPEG engines, without libnvjpeg.so.13 (with CUDA 12: .so.12), which is loaded at run
/// time, and in a library that was built without nvjpeg.h.
std::unique_ptr<JpegEngine> make_nvjpeg_engine(const EngineOptions& options, std::string& why_not);

}  // namespace penstock::images
