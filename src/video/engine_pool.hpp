// SPDX-License-Identifier: Apache-2.0
#pragma once

// EnginePool: the decoders of a device's video engines, which all readers share.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <penstock/version.hpp>
#include <penstock/video/video_stream.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "frame_engine.hpp"

namespace penstock::inline PENSTOCK_ABI::video {

/// There are at most two decoders for each engine of the device: two keep it busy, and more would
/// only slow each other. Any number of threads may call the members at the same time.
class EnginePool {
 public:
  /// Gives an engine back to its pool. Its surfaces must have been given back.
  struct GiveBack {
    EnginePool* pool = nullptr;
    void operator()(FrameEngine* engine) const { pool->give_back(engine); }
  };
  using Lease = std::unique_ptr<FrameEngine, GiveBack>;

  /// The pool of the current device, which lives while a reader has it. nullptr: the device has no
  /// engines, `why_not` says why.
  static std::shared_ptr<EnginePool> of_current_device(std::string& why_not);
  explicit EnginePool(std::unique_ptr<EngineMaker> maker) : maker_(std::move(maker)) {}

  /// As EngineMaker::why_not().
  std::string why_not(const VideoStream& stream);
  /// Takes an engine for such a stream. If all are in use, waits for one, or returns nullptr.
  /// Throws DecodeStopped.
  Lease take(const VideoStream& stream, bool waits, const std::stop_token& stop);

 private:
  void give_back(FrameEngine* engine);

  const std::unique_ptr<EngineMaker> maker_;
  std::mutex mutex_;
  std::condition_variable_any is_free_;
  int used_ = 0;
  std::vector<std::unique_ptr<FrameEngine>> free_;
};

}  // namespace penstock::video
