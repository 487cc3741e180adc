// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClipReader: reads clips of video files into device memory: decodes frames, and makes outputs of
// them in the order of a stream. It is for on_device sources; clip_source.hpp has one.
//
//   namespace video = penstock::video;
//   video::ClipReader reader;                                            // one for each worker
//   reader.read(clip, frames, view, format, out, stream);
//
// Two sets of page-locked memory and device memory are used in turn: the next clip is decoded while
// the copy and the kernel of this one are queued.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/images/resize_batch.hpp>
#include <penstock/images/view.hpp>
#include <penstock/video/clip_decoder.hpp>
#include <penstock/video/clip_times.hpp>
#include <penstock/video/convert_frames.hpp>
#include <span>
#include <stop_token>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

/// Whether the video engines of the GPU (NVDEC) decode. At most two readers for each engine of the
/// device decode by them at a time, so that they do not slow each other; the others wait, or decode
/// by the CPU.
enum class EngineUse : std::uint8_t {
  none,         ///< the CPU decodes everything
  if_possible,  ///< the engines decode what they can, and the CPU the rest
  if_free,      ///< the same, but a clip for which no engine is free is decoded by the CPU
  required,     ///< as if_possible; without an engine the construction fails
};

/// The settings of a ClipReader.
struct ClipReaderOptions {
  DecoderOptions decoder{};            ///< how the CPU decodes frames
  EngineUse engine = EngineUse::none;  ///< whether the GPU decodes
  /// Page-locked memory for decoded frames, and as much of the device; both twice. A frame of
  /// 1920 x 1080 takes 3 MiB. At least one frame has to fit.
  std::size_t staging_bytes = std::size_t{64} << 20;
};

/// Reads clips into device memory. Use an object on one thread at a time. It belongs to the device
/// that was current at construction, which must be current when it is used. After warm-up it
/// allocates no device memory and no page-locked memory, and makes no streams and events.
class ClipReader {
 public:
  /// Throws std::invalid_argument for invalid options, CudaError, and std::runtime_error if an
  /// engine is required and there is none.
  explicit ClipReader(const ClipReaderOptions& options = {});
  ClipReader(ClipReader&&) noexcept;
  ClipReader& operator=(ClipReader&&) noexcept;
  ~ClipReader();  ///< waits for its work

  /// Decodes these frames, in any order and with repetitions, and queues the work on `stream` that
  /// makes frames.size() outputs of format.values() values at `out`, in device memory. `view` is in
  /// the coordinates of the displayed picture; its output must be format.size. Blocks until all
  /// frames are decoded, and while the memory for the next ones is still read.
  ///
  /// Throws VideoError, which names the file, the frame and its time, if one cannot be decoded:
  /// some outputs are then queued, and others are not. Also throws std::invalid_argument for a view
  /// outside of the picture and what convert_frames rejects; images::DecodeStopped; CudaError.
  template <images::OutputElement T>
  [[gnu::always_inline]] void read(const Video& video, std::span<const std::uint64_t> frames,
                                   const images::View& view, const images::OutputFormat& format,
                                   T* out, StreamRef stream, const std::stop_token& stop = {}) {
    read_named(video, frames, view, format, out, penstock::detail::named(stream), stop);
  }

  /// Why no engine decodes; or, if there is one, why it did not decode the last clip that the CPU
  /// decoded; empty if there is no such clip.
  const std::string& why_no_engine() const noexcept;
  /// How many clips it has read, by what, and where the time went.
  const ClipTimes& times() const noexcept;
  /// What its decoder on the CPU has done so far.
  const DecoderStats& stats() const noexcept;

 private:
  class Core;
  /// Queues the kernel for `count` frames, whose descriptions are in device memory.
  using Launch = std::function<void(const ConvertedFrame* frames, std::int64_t count)>;

  template <class T>
  void read_named(const Video& video, std::span<const std::uint64_t> frames,
                  const images::View& view, const images::OutputFormat& format, T* out,
                  cudaStream_t stream, const std::stop_token& stop) {
    const auto launch = [&](const ConvertedFrame* described, std::int64_t count) {
      convert_frames(stream, described, count, format, out);
    };
    images::detail::output_pixels(format, out, "ClipReader");  // Throws before anything is decoded.
    read_by(video, frames, view, format.size, launch, stream, stop);
  }

  void read_by(const Video& video, std::span<const std::uint64_t> frames, const images::View& view,
               images::ImageSize output, const Launch& launch, cudaStream_t stream,
               const std::stop_token& stop);

  std::unique_ptr<Core> core_;
};

}  // namespace penstock::video
