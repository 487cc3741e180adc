// SPDX-License-Identifier: Apache-2.0
#pragma once

// TuneLog: keeps the last decisions of a tuner for stats(), and emits an NVTX mark for each
// decision.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/markers.hpp>
#include <penstock/tuning.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

class TuneLog {
 public:
  static constexpr std::size_t most_kept = 32;

  TuneLog() {
    for (std::size_t knob = 0; knob < marks_.size(); ++knob)
      for (std::size_t reason = 0; reason < marks_[knob].size(); ++reason)
        marks_[knob][reason] =
            make_marker(own_domain,
                        (std::string("tune ") + to_string(static_cast<TuneKnob>(knob)) + ": " +
                         in_words(static_cast<TuneReason>(reason)))
                            .c_str(),
                        {});
  }

  void add(const TuneDecision& decision) noexcept {
    mark(marks_[static_cast<std::size_t>(decision.knob)][static_cast<std::size_t>(decision.reason)],
         decision.to);
    const std::lock_guard lock(mutex_);
    kept_[made_++ % most_kept] = decision;
  }
  /// Sets the measured period of the decisions that were made after `batch` batches.
  void measure(std::uint64_t batch, std::chrono::nanoseconds period) noexcept {
    const std::lock_guard lock(mutex_);
    for (TuneDecision& decision : kept_)
      if (decision.batch == batch && decision.predicted.count() > 0) decision.measured = period;
  }

  /// Adds the decisions to `tuning`.
  void add_to(Tuning& tuning) const {
    const std::lock_guard lock(mutex_);
    tuning.decisions = made_;
    for (std::uint64_t i = made_ > most_kept ? made_ - most_kept : 0; i < made_; ++i)
      tuning.last.push_back(kept_[i % most_kept]);
  }

 private:
  static constexpr std::size_t kKnobs = 3, kReasons = 5;

  std::array<std::array<Marker, kReasons>, kKnobs> marks_{};
  mutable std::mutex mutex_;
  std::array<TuneDecision, most_kept> kept_{};
  std::uint64_t made_ = 0;
};

}  // namespace penstock::detail
