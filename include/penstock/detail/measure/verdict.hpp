// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/verdict.hpp>

#include <array>
#include <cstddef>

namespace penstock {
namespace detail {

// In the order of the enumerators.
inline constexpr std::array bottleneck_names{
    "source", "copy", "transform", "consumer", "waiting_for_slot", "waiting_for_data", "balanced"};
inline constexpr std::array verdict_names{
    "too_early",        "more_workers",   "deeper_ring", "more_slots",     "smaller_bytes",
    "bus_bound",        "compute_bound",  "balanced",    "cheaper_source", "faster_transform",
    "waiting_for_data", "one_late_batch", "varies"};

}  // namespace detail

PENSTOCK_INLINE const char* to_string(Bottleneck bottleneck) {
  return detail::bottleneck_names.at(static_cast<std::size_t>(bottleneck));
}
PENSTOCK_INLINE const char* to_string(VerdictKind kind) {
  return detail::verdict_names.at(static_cast<std::size_t>(kind));
}

}  // namespace penstock
