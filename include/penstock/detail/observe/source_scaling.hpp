// SPDX-License-Identifier: Apache-2.0
#pragma once

// SourceScaling: how the time of the source for a batch depends on the number of workers. Workers
// may share a resource, such as a disk or the cores. Then each batch takes longer with more
// workers, which a replay of recorded batches cannot know. This class keeps two times: the time of
// a batch when the workers do not slow each other down, and the time from one batch to the next
// when they do.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class SourceScaling {
 public:
  /// Records that each of `workers` workers takes `time` for a batch.
  void note(std::size_t workers, double time) {
    workers_ = static_cast<double>(workers);
    time_ = time;
    if (alone_ <= 0 || time < alone_) alone_ = time;
    if (shared_) apart_ = is_slowed() ? time_ / workers_ : std::min(apart_, time_ / workers_);
  }
  /// Decides whether workers share a resource. Call it after the number of workers was raised from
  /// `before`, with which a batch took `time`; the last note() is the result. With a shared
  /// resource, the time of a batch grows at most in proportion to the number of workers. If it
  /// grows far more, the source itself has become slower.
  void learn(std::size_t before, double time) {
    const double most = kMostSlower * workers_ / static_cast<double>(before) * time;
    shared_ = time_ > kSlower * time && (shared_ || time_ < most);
    if (shared_)
      apart_ = time_ / workers_;
    else
      alone_ = time_;
  }
  /// Call it if fewer workers filled fewer batches: then they share no resource.
  void forget() {
    shared_ = false;
    alone_ = time_;
  }

  /// The time of a batch in the last note().
  double time() const { return time_; }
  bool is_shared() const { return shared_; }
  /// The smallest number of workers that fills as many batches as the present number.
  std::size_t enough() const {
    if (!is_slowed()) return static_cast<std::size_t>(workers_);
    return static_cast<std::size_t>(std::max(1.0, std::ceil(alone_ / apart_ - 0.2)));
  }
  /// The factor by which the time of a batch changes with `workers` workers. It is 1 for more
  /// workers than the present number, so that more of them can be tried.
  double factor(std::size_t workers) const {
    const auto number = static_cast<double>(workers);
    if (!shared_ || number > workers_) return 1;
    return std::max(alone_, apart_ * number) / std::max(alone_, apart_ * workers_);
  }

 private:
  static constexpr double kSlower = 1.15, kMostSlower = 1.2;  // smaller differences are noise

  bool is_slowed() const { return shared_ && time_ > kSlower * alone_; }

  double workers_ = 1, time_ = 0, alone_ = 0, apart_ = 0;
  bool shared_ = false;
};

}  // namespace penstock::detail
