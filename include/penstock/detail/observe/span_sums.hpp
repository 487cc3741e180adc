// SPDX-License-Identifier: Apache-2.0
#pragma once

// SpanSums: adds up the times between consecutive timed events of a stream, once they are reached.
// Nothing here blocks.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/observe/worker_trace.hpp>

namespace penstock::detail {

/// The time from one timed event to another on the device; negative if they were reached in the
/// other order; nullopt if one is not reached yet, or CUDA failed. Allowed during stream captures;
/// leaves no error behind.
inline std::optional<std::chrono::nanoseconds> elapsed(cudaEvent_t from, cudaEvent_t to) noexcept {
  const CaptureModeGuard guard;
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, from, to) != cudaSuccess) {
    cudaGetLastError();
    return std::nullopt;
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e6 * double{milliseconds}));
}

/// One thread at a time adds, any thread reads.
class SpanSums {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  /// Adds a part, one in `streams`, of the times between `before`, `first`, `second` and `third`,
  /// recorded in this order. False if `third` is not reached yet: nothing is added.
  bool add(cudaEvent_t before, cudaEvent_t first, cudaEvent_t second, cudaEvent_t third,
           std::int64_t streams) noexcept {
    const auto last = elapsed(second, third);
    if (!last) return false;
    const Nanoseconds middle = or_none(elapsed(first, second));
    add_alone(gaps_, or_none(elapsed(before, first)).count() / streams);
    add_alone(middles_, middle.count() / streams);
    add_alone(lasts_, or_none(last).count() / streams);
    const auto both = (middle + or_none(last)).count();
    longest_.store(std::max(both, longest_.load(std::memory_order_relaxed)),
                   std::memory_order_relaxed);
    add_alone(count_, std::uint64_t{1});
    return true;
  }

  Nanoseconds gaps() const { return load(gaps_); }        ///< from before to first
  Nanoseconds middles() const { return load(middles_); }  ///< from first to second
  Nanoseconds lasts() const { return load(lasts_); }      ///< from second to third
  Nanoseconds longest() const { return load(longest_); }  ///< from first to third
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  /// Events of several streams may overlap: then there is no time between them.
  static Nanoseconds or_none(std::optional<Nanoseconds> span) {
    return std::max(span.value_or(Nanoseconds(0)), Nanoseconds(0));
  }
  static Nanoseconds load(const std::atomic<std::int64_t>& value) {
    return Nanoseconds(value.load(std::memory_order_relaxed));
  }

  std::atomic<std::int64_t> gaps_{0}, middles_{0}, lasts_{0}, longest_{0};
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace penstock::detail
