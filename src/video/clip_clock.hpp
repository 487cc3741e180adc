// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClipClock: measures the stages of the clip that a thread reads.

#include <chrono>
#include <penstock/video/clip_times.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::video {

/// The clock of this thread, from its construction to its destruction. One that was running before
/// pauses meanwhile.
class ClipClock {
 public:
  explicit ClipClock(ClipTimes& times, ClipStage first = ClipStage::other)
      : times_(times), stage_(first), before_(std::exchange(of_thread_, this)) {}
  ClipClock(const ClipClock&) = delete;
  ClipClock& operator=(const ClipClock&) = delete;
  ~ClipClock() {
    enter(stage_);
    of_thread_ = before_;
    if (before_ != nullptr) before_->since_ = since_;
  }

  /// nullptr: this thread measures nothing.
  static ClipClock* of_thread() { return of_thread_; }
  static void count_picture() {
    if (of_thread_ != nullptr) ++of_thread_->times_.pictures;
  }
  /// Ends the present stage and begins another one. Returns the one that ended.
  ClipStage enter(ClipStage stage) {
    const Clock::time_point now = Clock::now();
    times_[stage_] += now - std::exchange(since_, now);
    return std::exchange(stage_, stage);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static inline thread_local ClipClock* of_thread_ = nullptr;

  ClipTimes& times_;
  ClipStage stage_;
  Clock::time_point since_ = Clock::now();
  ClipClock* const before_;
};

/// From its construction to its destruction, this thread's clip is in a stage.
class InStage {
 public:
  explicit InStage(ClipStage stage)
      : clock_(ClipClock::of_thread()),
        before_(clock_ != nullptr ? clock_->enter(stage) : ClipStage::other) {}
  InStage(const InStage&) = delete;
  InStage& operator=(const InStage&) = delete;
  ~InStage() {
    if (clock_ != nullptr) clock_->enter(before_);
  }

 private:
  ClipClock* const clock_;
  const ClipStage before_;
};

}  // namespace penstock::video
