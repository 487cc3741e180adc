// SPDX-License-Identifier: Apache-2.0
#pragma once

// NameNumber: numbers the names that a profiler shows, so that it can distinguish the streams of
// several pipelines: "penstock copies" for the first one, "penstock copies 2" for a second one that
// exists at the same time.

#include <atomic>
#include <cstdint>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The lowest number, from 1, that no other object of this type holds. If more than 64 exist, the
/// others share the number 65. The numbers are unique within a program or shared library, as the
/// names of markers are.
template <class Of>
class NameNumber {
 public:
  NameNumber() {
    std::uint64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      bit_ = ~taken & (taken + 1);
    } while (!taken_.compare_exchange_weak(taken, taken | bit_, std::memory_order_relaxed));
  }
  ~NameNumber() { taken_.fetch_and(~bit_, std::memory_order_relaxed); }
  NameNumber(const NameNumber&) = delete;
  NameNumber& operator=(const NameNumber&) = delete;

  /// Returns `text`, followed by the number if that is not 1.
  std::string name(const char* text) const {
    const int number = bit_ == 0 ? 65 : 1 + __builtin_ctzll(bit_);
    return number == 1 ? text : text + (' ' + std::to_string(number));
  }

 private:
  static inline std::atomic<std::uint64_t> taken_{0};
  std::uint64_t bit_ = 0;
};

}  // namespace penstock::detail
