// SPDX-License-Identifier: Apache-2.0

#include <numeric>
#include <penstock/video/clip_times.hpp>

namespace penstock::inline PENSTOCK_ABI::video {

const char* to_string(ClipStage stage) {
  switch (stage) {
    case ClipStage::index:
      return "index";
    case ClipStage::open_file:
      return "open_file";
    case ClipStage::seek:
      return "seek";
    case ClipStage::read_packets:
      return "read_packets";
    case ClipStage::wait_for_decoder:
      return "wait_for_decoder";
    case ClipStage::engine:
      return "engine";
    case ClipStage::libavcodec:
      return "libavcodec";
    case ClipStage::copy:
      return "copy";
    case ClipStage::wait_for_device:
      return "wait_for_device";
    case ClipStage::other:
      return "other";
  }
  return "unknown";
}

std::chrono::nanoseconds ClipTimes::total() const {
  return std::accumulate(stages.begin(), stages.end(), std::chrono::nanoseconds(0));
}

ClipTimes& ClipTimes::operator+=(const ClipTimes& others) {
  by_engine += others.by_engine;
  by_cpu += others.by_cpu;
  frames += others.frames;
  pictures += others.pictures;
  for (std::size_t i = 0; i < kClipStages; ++i) stages[i] += others.stages[i];
  return *this;
}

ClipTimes& ClipTimes::operator-=(const ClipTimes& others) {
  by_engine -= others.by_engine;
  by_cpu -= others.by_cpu;
  frames -= others.frames;
  pictures -= others.pictures;
  for (std::size_t i = 0; i < kClipStages; ++i) stages[i] -= others.stages[i];
  return *this;
}

}  // namespace penstock::video
