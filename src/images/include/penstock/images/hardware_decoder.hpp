// SPDX-License-Identifier: Apache-2.0
#pragma once

// HardwareDecoder: decodes JPEG files to a batch in device memory with the GPU's JPEG engines.
// Threads of the CPU decode the files that the engines refuse, and a share of the others. It is for
// on_device sources:
//
//   namespace images = penstock::images;
//   const images::OutputFormat format{.size = {224, 224}};
//   auto source = penstock::on_device(penstock::per_worker([&] {
//     return [&, decoder = images::HardwareDecoder(), items = std::vector<images::JpegItem>()](
//                const penstock::Ticket& ticket, Batch& batch, cudaStream_t stream) mutable {
//       items.clear();
//       for (std::size_t row = 0; row < ticket.samples.size(); ++row)
//         items.push_back({files[ticket.samples[row]], ticket.sample_seed(row)});
//       for (const images::ImageResult& image :
//            decoder.decode(items, crop, format, batch.pixels.data_handle(), stream))
//         if (image.by == images::DecodedBy::nobody) throw images::ImageError(image.error);
//     };
//   }));
//
// The steps of a batch: the worker reads the headers, chooses the decoder of each image, and copies
// files to pinned memory. The engine decodes its images, and writes the parts that the crops need
// to device memory; that call blocks. Meanwhile threads decode the CPU's images to pinned memory,
// the crops only, and the worker helps when the engine's call returns. One copy transfers these and
// the geometry of all images; one kernel (resize_batch) makes the outputs.
//
// So both decoders work on one batch at a time, and its rows need no reordering: a worker that
// waits for the engine has nothing else to do, and its threads use that time. With several workers,
// the engines stay busy while one worker prepares. Engines, memory and streams exist twice
// (`lanes`) and are used in turn: the next batch is decoded while the kernel of this one waits for
// a free slot.
//
// With `cpu_share` set, the decoder of an image is a function of the file, its seed and the
// options, never of time: the same run gives the same pixels. The two decoders round and
// interpolate colours differently, and the CPU reduces while it decodes unless cpu.scaled_dct is
// off. Without `cpu_share`, the decoders of a device find the share together: they begin with the
// engines alone, try another share for some batches from time to time, and keep it if more images
// are delivered with it, or as many with less work for the CPU.
//
// Without engines (see make_nvjpeg_engine) the CPU decodes everything, and backend() says so.

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/jpeg_engine.hpp>
#include <penstock/images/resize_batch.hpp>
#include <penstock/images/view.hpp>
#include <span>
#include <stop_token>
#include <string>

namespace penstock::inline PENSTOCK_ABI::images {

/// A file and its seed. The seed decides which decoder decodes the image: Ticket::sample_seed
/// changes it in each epoch, while the sample's number keeps it.
struct JpegItem {
  std::span<const std::byte> file;  ///< all bytes of a JPEG file
  std::uint64_t seed = 0;           ///< passed to `view_of`, and decides who decodes the image
};

/// The decoder of an image.
enum class DecodedBy : std::uint8_t {
  nobody,    ///< it failed
  hardware,  ///< an engine of the GPU
  cpu,       ///< a thread of the CPU
};

/// The result for an image.
struct ImageResult {
  DecodedBy by = DecodedBy::nobody;  ///< the decoder; nobody: see `error`
  std::string error;  ///< why nobody decoded the image, without the file's name; else empty
};

/// The number of images so far.
struct HardwareStats {
  /// Images decoded by the engines, by the CPU, and by nobody.
  std::uint64_t hardware = 0, cpu = 0, failed = 0;
  /// Among cpu and failed: those that the engines did not accept (progressive, CMYK, damaged,
  /// larger than the memory, ...), and those that an engine accepted and could not decode.
  std::uint64_t refused = 0, returned = 0;
};

/// Sums over several decoders, such as those of all workers. Any thread may read them.
struct HardwareTotals {
  /// As in HardwareStats.
  std::atomic<std::uint64_t> hardware{0}, cpu{0}, failed{0}, refused{0}, returned{0};
};

/// The settings of a HardwareDecoder.
struct HardwareOptions {
  JpegOptions cpu{};  ///< its limits and apply_orientation hold for both decoders
  /// Threads for the CPU's images; the caller helps when the engine is done.
  int cpu_threads = 1;
  /// The share that the CPU decodes of the images that the engines accept: 0 ... 1; 0: the engines
  /// alone. nullopt: the share is found by the rate of delivered images. The decoder of an image,
  /// and so its pixels, may then differ from run to run.
  std::optional<double> cpu_share = {};
  int lanes = 2;  ///< sets of engine, memory and streams, used in turn; at least 2
  std::size_t device_bytes = std::size_t{256} << 20;   ///< memory for decoded images, for each lane
  std::size_t staging_bytes = std::size_t{128} << 20;  ///< page-locked memory, for each lane
  EngineOptions engine{};                              ///< what the engines are made for
  /// Throws if there is no engine, instead of decoding everything on the CPU.
  bool require_engine = false;
  /// Also counts images there. It must outlive the decoder.
  HardwareTotals* totals = nullptr;
};

/// Decodes JPEG files to a batch in device memory. Use each object on one thread at a time. It
/// belongs to the device that was current at construction, which must be current when decode() is
/// called. After warm-up neither it nor the engine allocates device memory or page-locked memory.
/// Only the messages of images that fail allocate.
class HardwareDecoder {
 public:
  /// Throws std::invalid_argument for invalid options, CudaError, and std::runtime_error if an
  /// engine is required and there is none.
  explicit HardwareDecoder(const HardwareOptions& options = {},
                           const MakeEngine& make = make_nvjpeg_engine);
  HardwareDecoder(HardwareDecoder&&) noexcept;
  HardwareDecoder& operator=(HardwareDecoder&&) noexcept;
  ~HardwareDecoder();  ///< waits for its work

  /// Decodes `items`, and queues the work on `stream` that makes items.size() outputs of `format`
  /// at `out`, in device memory. `view_of(seed, size)` returns the View of an image, as
  /// RandomResizedCrop does; its output must be format.size. Blocks until the files are decoded or
  /// copied; when it returns, they may be freed. Images that cannot be decoded become zeros.
  ///
  /// Returns a result for each item, valid until the next call. Throws what view_of throws,
  /// std::invalid_argument for a format that cannot be written, a view that does not fit, and an
  /// output that is too large for the decoder's memory; also CudaError and the errors of the
  /// engine.
  template <OutputElement T, class ViewOf>
  [[gnu::always_inline]] std::span<const ImageResult> decode(std::span<const JpegItem> items,
                                                             ViewOf&& view_of,
                                                             const OutputFormat& format, T* out,
                                                             StreamRef stream,
                                                             const std::stop_token& stop = {}) {
    return decode_named(items, view_of, format, out, penstock::detail::named(stream), stop);
  }

  /// Counts the images that this decoder has received so far.
  HardwareStats stats() const;
  /// The CPU's share of the last batch.
  double cpu_share() const;
  /// The engine's name, or "cpu".
  std::string backend() const;
  /// Why backend() is "cpu"; empty otherwise.
  std::string why_no_engine() const;

 private:
  class Core;
  /// A part of a batch that is decoded, or will be in the order of the stream.
  struct Chunk {
    ImageBatch images;
    std::int64_t first = 0;  ///< row in the batch
  };

  template <class T, class ViewOf>
  std::span<const ImageResult> decode_named(std::span<const JpegItem> items, ViewOf& view_of,
                                            const OutputFormat& format, T* out, cudaStream_t stream,
                                            const std::stop_token& stop) {
    detail::check_format<T>(format);
    begin(items, format.size);
    for (std::size_t row = 0; row < items.size(); ++row)
      if (const ImageSize size = size_of(row); size.height > 0)
        set_view(row, view_of(items[row].seed, size));
    for (Chunk chunk; next(chunk, stream, stop); end(stream))
      resize_batch(stream, chunk.images, format, out + chunk.first * format.values());
    return results();
  }

  void begin(std::span<const JpegItem> items, ImageSize output);
  ImageSize size_of(std::size_t row) const;  ///< empty: it failed
  void set_view(std::size_t row, const View& view);
  bool next(Chunk& chunk, cudaStream_t stream, const std::stop_token& stop);
  void end(cudaStream_t stream);  ///< the last chunk's kernel is queued
  std::span<const ImageResult> results() const;

  std::unique_ptr<Core> core_;
};

}  // namespace penstock::images
