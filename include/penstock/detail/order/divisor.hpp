// SPDX-License-Identifier: Apache-2.0
#pragma once

// Divisor: divides many numbers by one, by a multiplication with its inverse, which takes a third
// of the time of a division.

#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class Divisor {
 public:
  struct Result {
    std::uint64_t quotient, remainder;
  };

  /// Requires divisor >= 1.
  explicit Divisor(std::uint64_t divisor) noexcept
      : divisor_(divisor), inverse_(~std::uint64_t{0} / divisor) {}

  Result divide(std::uint64_t number) const noexcept {
    // The inverse is rounded down, so the quotient is at most 2 too small.
    Result result{upper_product(number, inverse_), 0};
    result.remainder = number - result.quotient * divisor_;
    for (; result.remainder >= divisor_; result.remainder -= divisor_) ++result.quotient;
    return result;
  }

 private:
  __extension__ typedef unsigned __int128 Wide;  // nvcc accepts no alias here
  static std::uint64_t upper_product(std::uint64_t a, std::uint64_t b) noexcept {
    return static_cast<std::uint64_t>((Wide{a} * b) >> 64);
  }

  std::uint64_t divisor_, inverse_;
};

}  // namespace penstock::detail
