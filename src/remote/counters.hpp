// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counters: what Client::stats() sums up.

#include <atomic>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::remote {

/// As in Stats.
struct Counters {
  std::atomic<std::uint64_t> requests{0}, bytes{0}, retries{0}, hedges{0}, hedges_won{0},
      from_ahead{0}, throttled{0}, throttled_nanoseconds{0}, processor_nanoseconds{0}, verified{0},
      damaged{0}, cache_hits{0}, cache_misses{0}, from_cache{0}, cache_damaged{0}, to_cache{0},
      cache_errors{0};
};

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t more = 1) noexcept {
  counter.fetch_add(more, std::memory_order_relaxed);
}

}  // namespace penstock::remote
