// SPDX-License-Identifier: Apache-2.0
#pragma once

// SkippedSteps: steps whose loss or gradients were not finite. With a loss scale the device has
// skipped them, and the next ones have a smaller scale (LossScale): a few are normal, at the start
// above all. Many in a row are not: then no scale helps, and the run ends. Without a loss scale the
// first one ends it, since its gradients are in the weights.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "../ops/ops.hpp"

namespace resnet {

/// One thread adds, any thread asks.
class SkippedSteps {
 public:
  /// The scale is then a thousandth of what it was.
  static constexpr int most_in_a_row = 10;

  /// The metrics of each step, in their order. `step` names it ("step 7"). Throws
  /// std::runtime_error where the run has to end.
  void add(const Metrics& metrics, const std::string& step) {
    if (metrics.skipped > 0) {
      count_.fetch_add(1, std::memory_order_relaxed);
      if (++in_a_row_ == most_in_a_row)
        throw std::runtime_error(std::to_string(most_in_a_row) + " steps in a row, up to " + step +
                                 ", were skipped: their losses or gradients are not finite, "
                                 "whatever the loss scale; lower the learning rate (--rate)");
      return;
    }
    in_a_row_ = 0;
    if (!std::isfinite(metrics.loss))
      throw std::runtime_error("the loss of " + step + " is " + std::to_string(metrics.loss) +
                               ": lower the learning rate (--rate)");
  }

  std::int64_t count() const { return count_.load(std::memory_order_relaxed); }
  /// To be appended to a line: ", 3 steps skipped"; empty if there are none.
  std::string text() const {
    const std::int64_t skipped = count();
    if (skipped == 0) return {};
    return ", " + std::to_string(skipped) + (skipped == 1 ? " step" : " steps") + " skipped";
  }

 private:
  std::atomic<std::int64_t> count_{0};
  int in_a_row_ = 0;  // of the thread that adds
};

}  // namespace resnet
