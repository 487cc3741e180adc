// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ranges that a profiler shows of a training loop, within each other; those of the network
// (forward, loss, backward, optimizer) are in a step. penstock adds its own.

#include <optional>
#include <penstock/markers.hpp>

namespace resnet::ranges {

struct EntireTraining {
  static constexpr const char* message = "entire training";
};
struct WarmUp {
  static constexpr const char* message = "warm-up";
};
/// From the first measured step until the device has done the last one.
struct MeasuredSteps {
  static constexpr const char* message = "measured steps";
};
struct Epoch {
  static constexpr const char* message = "epoch";
};
struct Step {
  static constexpr const char* message = "step";
};
struct GetBatch {
  static constexpr const char* message = "get batch";
};
struct CopyBatch {
  static constexpr const char* message = "copy batch";
};

/// The warm-up, or the measured steps, and the epoch in them.
struct AroundSteps {
  std::optional<penstock::ScopedRange> part, epoch;

  void close() {
    epoch.reset();
    part.reset();
  }
};

}  // namespace resnet::ranges
