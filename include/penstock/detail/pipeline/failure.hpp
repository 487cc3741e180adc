// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <penstock/failure.hpp>
#include <stdexcept>

namespace penstock {

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
         static_cast<double>(failures) <= std::ceil(rate_ * static_cast<double>(batches));
}

PENSTOCK_INLINE std::string FailurePolicy::limits() const {
  std::string text = at_most_ == unlimited ? "any number" : "at most " + std::to_string(at_most_);
  if (rate_ < 1) text += ", and a part of " + std::to_string(rate_);
  return text;
}

PENSTOCK_INLINE FailurePolicy::FailurePolicy(Action action, std::uint64_t at_most, double rate)
    : action_(action), at_most_(at_most), rate_(rate) {
  if (!(rate >= 0 && rate <= 1))
    throw std::invalid_argument("FailurePolicy: rate is " + std::to_string(rate) +
                                ", must be 0 to 1");
}

}  // namespace penstock
