// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the programs of this folder end in the middle of: a prefetcher of numbers, its source slow
// enough that workers are busy whenever something happens to them.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <penstock/prefetcher.hpp>
#include <thread>

namespace endings {

struct Values {
  penstock::Tensor<std::uint64_t, 1> value;
};

constexpr std::uint64_t kBatches = 200;

inline penstock::Layout<Values> layout() {
  return penstock::Layout<Values>{16}.field(&Values::value, {});
}

inline penstock::Sampler sampler() {
  return penstock::Sampler{{.samples = 16 * kBatches, .batch_size = 16, .shuffle = true}};
}

inline void fill(const penstock::Ticket& ticket, Values& batch) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    batch.value(static_cast<std::int64_t>(i)) = ticket.samples[i];
    std::this_thread::yield();
  }
}

using Prefetcher = penstock::Prefetcher<Values>;
using Lease = penstock::Lease<Values>;

inline const penstock::PrefetcherOptions kOptions{.workers = 2, .host_depth = 4, .device_depth = 3};

/// Ends the program, at once and as a failure, where `holds` is false.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "endings: not so: %s\n", what);
  std::fflush(stderr);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace endings
