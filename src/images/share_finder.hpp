// SPDX-License-Identifier: Apache-2.0
#pragma once

// ShareFinder: the share of the images that the CPU decodes of those that an engine takes, found by
// what is delivered.
//
// Neither decoder's own speed tells whether its work is worth anything: the consumer may be the
// limit, and the CPU's threads take cores and memory bandwidth from the training's own thread and
// from the workers that feed the engines. So the images that all decoders deliver together are
// counted, with the present share, with another one, and with the present one again. The other one
// is kept if more images come with it or, where it is lower, if as many do. It starts at 0: the
// engines alone.
//
// A share that was no better costs a part of the images of one window in three, so that failures
// make the next trial later and the change smaller.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <utility>

namespace penstock::images {

/// Whether the CPU decodes the image with this seed: a pure function of both.
inline bool is_drawn_for_cpu(std::uint64_t seed, double share) {
  // Other bits than those that crops draw with the same seed.
  const std::uint64_t bits = penstock::detail::mix64(seed ^ 0x6a70'6567'2d73'706c);
  return static_cast<double>(bits >> 11) * 0x1p-53 < share;
}

/// Not for several threads at a time. It reads no clock.
class ShareFinder {
 public:
  using Time = std::chrono::duration<double>;

  /// The share for the next batch.
  double share() const { return phase_ == Phase::trial ? trial_ : share_; }

  /// A batch of `images` is decoded, at the time `now`, which never goes back.
  void add(std::size_t images, Time now) {
    ++batches_;
    if (is_settling_) {
      if (batches_ >= kSettle) start_window(now);
      return;
    }
    images_ += static_cast<double>(images);
    if (batches_ < kWindow || now <= begin_) return;
    const double rate = images_ / (now - begin_).count();
    start_window(now);
    end_window(rate);
  }

  // Batches of a window, and those before it that may have begun with another share.
  static constexpr int kWindow = 16, kSettle = 8;
  /// Windows until the next trial, at most.
  static constexpr int kLongestPause = 256;

 private:
  enum class Phase { before, trial, after };

  /// Less is within what one window differs from the next.
  static constexpr double kBetter = 1.02, kAsGood = 0.98;
  static constexpr double kFirstStep = 0.05, kLeastStep = 0.04, kMostStep = 0.4;
  /// A change by which the conditions are others: what was learnt does not hold.
  static constexpr double kOtherRate = 1.15;

  void start_window(Time now) {
    is_settling_ = false;
    batches_ = 0;
    begin_ = now;
    images_ = 0;
  }
  void settle(Phase phase) {
    phase_ = phase;
    is_settling_ = true;
    batches_ = 0;
  }

  void end_window(double rate) {
    switch (phase_) {
      case Phase::before:
        forget_if_other(rate);
        before_ = rate;
        if (pause_-- > 0) return;
        choose();
        return settle(Phase::trial);
      case Phase::trial:
        tried_ = rate;
        return settle(Phase::after);
      case Phase::after:
        decide(std::max(before_, rate));  // The consumer may have paused in one of them.
        return settle(Phase::before);
    }
  }

  void choose() {
    if (share_ <= 0) is_down_ = false;
    if (share_ >= 1) is_down_ = true;
    trial_ = std::clamp(share_ + (is_down_ ? -step_ : step_), 0.0, 1.0);
  }

  /// In the same direction after a success, in the other one after a failure. More work for the
  /// CPU has to be worth it twice: the rates of some machines differ by more from window to window.
  void decide(double present) {
    const bool is_good = tried_ > present * (is_down_ ? kAsGood : kBetter);
    if (is_good && !is_down_ && !std::exchange(was_good_, true)) return;
    was_good_ = false;
    learnt_ = std::max(present, tried_);
    if (is_good) {
      share_ = trial_;
      step_ = std::min(2 * step_, kMostStep);
      failures_ = pause_ = 0;
    } else {
      step_ = std::max(step_ / 2, kLeastStep);
      pause_ = std::min(1 << std::min(failures_++, 16), kLongestPause);
      is_down_ = !is_down_;
    }
  }

  void forget_if_other(double rate) {
    if (learnt_ == 0 || (rate < learnt_ * kOtherRate && rate * kOtherRate > learnt_)) return;
    learnt_ = rate;
    failures_ = pause_ = 0;
    step_ = kFirstStep;
  }

  double share_ = 0, trial_ = 0, step_ = kFirstStep;
  Phase phase_ = Phase::before;
  bool is_settling_ = true, is_down_ = false, was_good_ = false;
  int batches_ = 0, failures_ = 0, pause_ = 0;
  Time begin_{0};
  double images_ = 0, before_ = 0, tried_ = 0, learnt_ = 0;
};

}  // namespace penstock::images
