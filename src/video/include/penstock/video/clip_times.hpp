// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClipTimes: where the time of clips went, from the opened file to the last decoded frame.
// clip_verdict.hpp has an example.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::video {

/// What a worker does for a clip. Each moment belongs to one stage.
enum class ClipStage : std::uint8_t {
  index,             ///< loads the index of the file, or makes it
  open_file,         ///< opens the file and reads its headers
  seek,              ///< goes to a key frame
  read_packets,      ///< reads the packets of the video
  wait_for_decoder,  ///< waits until a decoder of the video engines is free
  engine,            ///< feeds a video engine, and waits for its pictures
  libavcodec,        ///< decodes on the CPU
  copy,              ///< copies frames that the CPU has decoded to page-locked memory
  wait_for_device,   ///< waits until the device has read earlier frames
  other,             ///< all else: chooses, describes and queues
};
inline constexpr std::size_t kClipStages = 10;  ///< number of the stages

/// The enumerator's name: "read_packets".
const char* to_string(ClipStage stage);

/// Counts of clips, and times of workers that are summed over clips and workers.
struct ClipTimes {
  std::uint64_t by_engine = 0;  ///< clips that a video engine has decoded
  std::uint64_t by_cpu = 0;     ///< clips that libavcodec has decoded
  std::uint64_t frames = 0;     ///< frames that were delivered
  std::uint64_t pictures = 0;   ///< pictures that were decoded for them
  std::array<std::chrono::nanoseconds, kClipStages> stages{};  ///< by the number of the stage

  std::chrono::nanoseconds& operator[](ClipStage stage) {
    return stages[static_cast<std::size_t>(stage)];
  }
  std::chrono::nanoseconds operator[](ClipStage stage) const {
    return stages[static_cast<std::size_t>(stage)];
  }
  /// The time of all stages.
  std::chrono::nanoseconds total() const;
  ClipTimes& operator+=(const ClipTimes& others);
  ClipTimes& operator-=(const ClipTimes& others);
};

/// The sum over all workers of a pipeline. Any thread may call the members at any time.
class ClipTotals {
 public:
  void add(const ClipTimes& times) {
    const std::lock_guard lock(mutex_);
    sum_ += times;
  }
  /// What was added so far: each worker adds its times after each batch.
  ClipTimes read() const {
    const std::lock_guard lock(mutex_);
    return sum_;
  }

 private:
  mutable std::mutex mutex_;
  ClipTimes sum_;
};

}  // namespace penstock::video
