// SPDX-License-Identifier: Apache-2.0
#pragma once

// NameNumber: tells the streams of several pipelines apart in a profiler: "penstock copies" of the
// first one, "penstock copies 2" of one that lives beside it.

#include <atomic>
#include <cstdint>
#include <string>

namespace penstock::detail {

/// The lowest number, from 1, that no other object of this type has while this one lives. Beyond 64
/// of them they share a number. They belong to a program or shared library, as names of markers do.
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

  /// `text`, and the number if it is not the first.
  std::string name(const char* text) const {
    const int number = bit_ == 0 ? 65 : 1 + __builtin_ctzll(bit_);
    return number == 1 ? text : text + (' ' + std::to_string(number));
  }

 private:
  static inline std::atomic<std::uint64_t> taken_{0};
  std::uint64_t bit_ = 0;
};

}  // namespace penstock::detail
