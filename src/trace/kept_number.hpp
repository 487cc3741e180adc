// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <penstock/version.hpp>

#include "event_sink.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// The number of a name or a track in a sink. It is kept as long as it is valid: for one era of one
/// sink. Any thread may use it.
class KeptNumber {
 public:
  /// `find()` asks the sink, if the kept number is no longer valid.
  template <class Find>
  std::uint32_t get(const EventSink& sink, Find find) {
    const std::uint32_t era = sink.era();  // before find(), which may begin the next era
    const std::uint64_t kept = kept_.load(std::memory_order_relaxed);
    if (kept >> 32 == era) return static_cast<std::uint32_t>(kept);
    const std::uint32_t number = find();
    kept_.store(std::uint64_t{era} << 32 | number, std::memory_order_relaxed);
    return number;
  }
  void forget() { kept_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> kept_{0};  // era and number; there is no era 0
};

}  // namespace penstock::trace::detail
