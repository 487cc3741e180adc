// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <penstock/verdict.hpp>

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE const char* to_string(Bottleneck bottleneck) {
  constexpr std::array names{
      "source",           "copy",    "transform", "consumer", "waiting_for_slot",
      "waiting_for_data", "balanced"};
  return names.at(static_cast<std::size_t>(bottleneck));
}
PENSTOCK_INLINE const char* to_string(VerdictKind kind) {
  constexpr std::array names{"too_early",  "nothing",       "more_workers",
                             "more_depth", "faster_source", "faster_copy"};
  return names.at(static_cast<std::size_t>(kind));
}

}  // namespace penstock
