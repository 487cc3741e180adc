// SPDX-License-Identifier: Apache-2.0
#pragma once

// ShareFinder: among the images that an engine accepts, finds the share that the CPU should decode,
// by the rate of delivered images.
//
// The speed of a single decoder does not tell whether its work is useful: the consumer may be the
// limit, and the CPU's threads take cores and memory bandwidth from the training's own thread and
// from the workers that feed the engines. So this counts the images that all decoders deliver
// together, with the present share, with another one, and with the present one again. It adopts the
// other share if more images are delivered with it or, if it is lower, if as many are. It starts at
// 0: the engines alone.
//
// A trial of a worse share costs a part of the images of one window in three. So after a failure,
// the next trial comes later and its change is smaller.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::images {

/// Whether the CPU decodes the image with this seed. It is a pure function of the seed and the
/// share.
inline bool is_drawn_for_cpu(std::uint64_t seed, double share) {
  // The constant makes these bits independent of those that crops draw with the same seed.
  const std::uint64_t bits = penstock::detail::mix64(seed ^ 0x6a70'6567'2d73'706c);
  return static_cast<double>(bits >> 11) * 0x1p-53 < share;
}

/// Use it on one thread at a time. It reads no clock.
class ShareFinder {
 public:
  using Time = std::chrono::duration<double>;

  /// Returns the share for the next batch.
  double share() const { return phase_ == Phase::trial ? trial_ : share_; }

  /// Records that a batch of `images` is decoded at the time `now`, which never decreases.
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

  // The batches of a window, and the batches before it that may have begun with another share.
  static constexpr int kWindow = 16, kSettle = 8;
  /// The largest number of windows until the next trial.
  static constexpr int kLongestPause = 256;

 private:
  enum class Phase { before, trial, after };

  /// Smaller differences are within the variation from window to window.
  static constexpr double kBetter = 1.02, kAsGood = 0.98;
  static constexpr double kFirstStep = 0.05, kLeastStep = 0.04, kMostStep = 0.4;
  /// A change of the rate by this factor means that the conditions have changed, and earlier
  /// results do not hold.
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

  /// Continues in the same direction after a success, in the other one after a failure. More work
  /// for the CPU must be better twice, because the rates of some machines differ by more from
  /// window to window.
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
