// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ranges that a profiler shows of a training loop, within each other; those of the network
// (forward, loss, backward, optimizer, and on request each layer's) are in a step. penstock adds
// its own. Each kind of work has a category, and so a colour, of its own.

#include <cstdint>
#include <optional>
#include <penstock/markers.hpp>
#include <string>

namespace resnet::ranges {

namespace category = penstock::markers::category;

struct EntireTraining {
  static constexpr const char* message = "entire training";
  static constexpr penstock::MarkerCategory category = category::loop;
};
struct WarmUp {
  static constexpr const char* message = "warm-up";
  static constexpr penstock::MarkerCategory category = category::loop;
};
/// From the first measured step until the device has done the last one.
struct MeasuredSteps {
  static constexpr const char* message = "measured steps";
  static constexpr penstock::MarkerCategory category = category::loop;
};
struct Step {
  static constexpr const char* message = "step";
  static constexpr penstock::MarkerCategory category = category::loop;
};
struct GetBatch {
  static constexpr const char* message = "get batch";
  static constexpr penstock::MarkerCategory category = category::get_batch;
};
struct CopyBatch {
  static constexpr const char* message = "copy batch";
  static constexpr penstock::MarkerCategory category = category::copy;
};
/// The host waits until the device has done a step, and takes its loss.
struct ReadLoss {
  static constexpr const char* message = "read loss";
  static constexpr penstock::MarkerCategory category = category::read;
};
struct Validation {
  static constexpr const char* message = "validation";
  static constexpr penstock::MarkerCategory category = category::loop;
};

/// "epoch 3": a name for each, since profilers sum up the ranges of a name.
inline penstock::RangeName epoch(std::uint64_t number) {
  return penstock::RangeName(("epoch " + std::to_string(number)).c_str(), category::loop);
}

/// The warm-up, or the measured steps, and the epoch in them.
struct AroundSteps {
  std::optional<penstock::ScopedRange> part, epoch;

  void close() {
    epoch.reset();
    part.reset();
  }
};

}  // namespace resnet::ranges
