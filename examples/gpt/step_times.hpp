// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepTimes: how long steps take on the device, from the end of the one before, in two groups: with
// the input, and with a batch that was there. The first steps after each change of the group are
// left out: a pipeline that had time to fill its queues would make them faster.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <penstock/cuda.hpp>
#include <vector>

#include "../common/check.hpp"

namespace gpt {

class StepTimes {
 public:
  explicit StepTimes(std::int64_t steps) {
    marks_.reserve(static_cast<std::size_t>(steps));
    for (std::int64_t i = 0; i < steps; ++i)
      marks_.push_back({penstock::Event(cudaEventDefault), false});
  }

  /// The end of a step, on its stream. Does not block.
  void end_step(bool has_input, cudaStream_t stream) {
    Mark& mark = marks_[static_cast<std::size_t>(done_++)];
    mark.event.record(stream);
    mark.has_input = has_input;
  }

  /// The median of a group in milliseconds; none if the group has no steps. The device has done all
  /// of them.
  std::optional<double> median(bool has_input) const {
    std::vector<double> times;
    std::int64_t run = 0;  // steps since the group changed
    for (std::size_t i = 1; i < static_cast<std::size_t>(done_); ++i) {
      run = marks_[i].has_input == marks_[i - 1].has_input ? run + 1 : 0;
      if (marks_[i].has_input != has_input || run < kLeftOut) continue;
      float time = 0;
      examples::check(cudaEventElapsedTime(&time, marks_[i - 1].event.get(), marks_[i].event.get()),
                      "cudaEventElapsedTime");
      times.push_back(static_cast<double>(time));
    }
    if (times.empty()) return std::nullopt;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

 private:
  static constexpr std::int64_t kLeftOut = 5;
  struct Mark {
    penstock::Event event;
    bool has_input;
  };

  std::vector<Mark> marks_;
  std::int64_t done_ = 0;
};

}  // namespace gpt
