// SPDX-License-Identifier: Apache-2.0
#pragma once

// A timeline as a training loop leaves it, made by hand: two streams, a thread that takes the
// steps, workers that fill batches. Some of its batches come late, so that the device has gaps.
// Everything is a function of the numbers given.

#include <cstdint>
#include <penstock/trace/timeline.hpp>

namespace penstock::test {

struct TrainingRun {
  std::uint64_t steps = 40;
  std::uint64_t kernels = 24;  ///< of a step
  trace::Time kernel = 40'000;
  int workers = 3;
};

trace::Timeline timeline_of(const TrainingRun& run);

}  // namespace penstock::test
