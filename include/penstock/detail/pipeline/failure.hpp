// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <penstock/failure.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// `rate` of `count`, rounded up. The binary number for a decimal fraction, such as 0.07, may be a
/// little larger than the fraction: what is a whole number but for that is not rounded up.
inline double part_of(double rate, std::uint64_t count) noexcept {
  constexpr double kRoundings = 4 * std::numeric_limits<double>::epsilon();
  const double part = rate * static_cast<double>(count);
  const double whole = std::round(part);
  return std::abs(part - whole) <= kRoundings * part ? whole : std::ceil(part);
}

}  // namespace detail

PENSTOCK_INLINE std::ostream& operator<<(std::ostream& out, const Failure& failure) {
  out << (failure.replaced ? "replaced" : "skipped") << " epoch " << failure.epoch << ", batch "
      << failure.batch << ": " << failure.what << " (samples";
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(kShown, failure.samples.size()); ++i)
    out << ' ' << failure.samples[i];
  if (failure.samples.size() > kShown) out << " ... of " << failure.samples.size();
  return out << ')';
}

PENSTOCK_INLINE bool FailurePolicy::tolerates(std::uint64_t failures,
                                              std::uint64_t batches) const noexcept {
  return action_ != Action::abort && failures <= at_most_ &&
         static_cast<double>(failures) <= detail::part_of(rate_, batches);
}

PENSTOCK_INLINE std::string FailurePolicy::limits() const {
  std::ostringstream text;
  if (at_most_ == unlimited)
    text << "any number";
  else
    text << "at most " << at_most_;
  if (rate_ < 1) text << ", and a part of " << rate_;
  return text.str();
}

PENSTOCK_INLINE FailurePolicy::FailurePolicy(Action action, std::uint64_t at_most, double rate)
    : action_(action), at_most_(at_most), rate_(rate) {
  if (!(rate >= 0 && rate <= 1))
    throw std::invalid_argument("FailurePolicy: rate is " + std::to_string(rate) +
                                ", must be 0 to 1");
}

}  // namespace penstock
