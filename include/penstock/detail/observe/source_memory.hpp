// SPDX-License-Identifier: Apache-2.0
#pragma once

// SourceMemory: how long the source took for a batch, by the number of workers. Workers may share
// something, a disk or the cores: then each batch takes longer where they are more, and no replay
// of recorded batches can know it. What is remembered is the time of a batch where the workers do
// not slow each other down, and the time from one batch to the next where they do.

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace penstock::detail {

class SourceMemory {
 public:
  /// `workers` take `time` for a batch each.
  void note(std::size_t workers, double time) {
    workers_ = static_cast<double>(workers);
    time_ = time;
    if (alone_ <= 0 || time < alone_) alone_ = time;
    if (shared_) apart_ = is_slowed() ? time_ / workers_ : std::min(apart_, time_ / workers_);
  }
  /// The number of workers was raised from `before`, who took `time`, and what was noted last is
  /// the result. Those that share something slow each other down by as much as they are more; far
  /// beyond that, it is another source by now.
  void learn(std::size_t before, double time) {
    const double most = kMostSlower * workers_ / static_cast<double>(before) * time;
    shared_ = time_ > kSlower * time && (shared_ || time_ < most);
    if (shared_)
      apart_ = time_ / workers_;
    else
      alone_ = time_;
  }
  /// Fewer workers did less: they share nothing, and the source is as slow as it is.
  void forget() {
    shared_ = false;
    alone_ = time_;
  }

  /// Of a batch, as it was noted last.
  double time() const { return time_; }
  bool is_shared() const { return shared_; }
  /// So many workers do as much as those that run, and do not slow each other down.
  std::size_t enough() const {
    if (!is_slowed()) return static_cast<std::size_t>(workers_);
    return static_cast<std::size_t>(std::max(1.0, std::ceil(alone_ / apart_ - 0.2)));
  }
  /// The time of a batch takes this factor with so many workers. More of them may help after all.
  double factor(std::size_t workers) const {
    const auto number = static_cast<double>(workers);
    if (!shared_ || number > workers_) return 1;
    return std::max(alone_, apart_ * number) / std::max(alone_, apart_ * workers_);
  }

 private:
  static constexpr double kSlower = 1.15, kMostSlower = 1.2;  // beyond noise

  bool is_slowed() const { return shared_ && time_ > kSlower * alone_; }

  double workers_ = 1, time_ = 0, alone_ = 0, apart_ = 0;
  bool shared_ = false;
};

}  // namespace penstock::detail
