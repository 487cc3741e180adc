// SPDX-License-Identifier: Apache-2.0
#pragma once

// The names of the enumerators of verdict.hpp, in their order.

#include <array>

namespace penstock::detail {

inline constexpr std::array bottleneck_names{
    "source", "copy", "transform", "consumer", "waiting_for_slot", "waiting_for_data", "balanced"};
inline constexpr std::array verdict_names{"too_early",  "nothing",       "more_workers",
                                          "more_depth", "faster_source", "faster_copy"};

}  // namespace penstock::detail
