// SPDX-License-Identifier: Apache-2.0
#pragma once

// FrameEngine: decodes frames of video files into memory of the device by its engines.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/video/clip_decoder.hpp>
#include <penstock/video/frame_planes.hpp>
#include <span>
#include <stop_token>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

/// What receives the frames of an engine.
class EngineSink {
 public:
  virtual ~EngineSink() = default;
  /// Receives frame k of the list: planes in device memory, which are complete in the order of the
  /// stream and valid until FrameEngine::give_back().
  virtual void take(std::size_t k, const FramePlanes& planes) = 0;
  /// Has to give back all surfaces now: the decoder is about to be changed.
  virtual void give_back_all() = 0;
};

/// A decoder of the engines. Use an object on one thread at a time, with the device current that
/// was current when it was made. Surfaces that a sink has received have to be given back.
class FrameEngine {
 public:
  FrameEngine() = default;
  FrameEngine(const FrameEngine&) = delete;
  FrameEngine& operator=(const FrameEngine&) = delete;
  virtual ~FrameEngine() = default;

  /// How many surfaces may be out at a time.
  virtual std::size_t surfaces() const noexcept = 0;
  /// As ClipDecoder, but on `stream`. Surfaces of earlier calls may still be out.
  virtual void decode(const Video& video, std::span<const std::uint64_t> frames,
                      cudaStream_t stream, EngineSink& sink, const std::stop_token& stop) = 0;
  /// Gives back a surface, by its luma plane. Nothing may still read it.
  virtual void give_back(const std::uint8_t* luma) noexcept = 0;
};

/// Makes the engines of a device. Use an object on one thread at a time.
class EngineMaker {
 public:
  EngineMaker() = default;
  EngineMaker(const EngineMaker&) = delete;
  EngineMaker& operator=(const EngineMaker&) = delete;
  virtual ~EngineMaker() = default;

  /// Why no engine decodes such a stream; empty if one does.
  virtual std::string why_not(const VideoStream& stream) = 0;
  /// How many engines the device has for such a stream; at least 1.
  virtual int engines(const VideoStream& stream) = 0;
  virtual std::unique_ptr<FrameEngine> make() = 0;
};

/// The engines of the current device; nullptr: it has none, `why_not` says why.
std::unique_ptr<EngineMaker> make_nvdec(std::string& why_not);

}  // namespace penstock::video
