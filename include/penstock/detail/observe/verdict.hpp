// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <penstock/detail/observe/verdict_names.hpp>
#include <penstock/verdict.hpp>

namespace penstock {

PENSTOCK_INLINE const char* to_string(Bottleneck bottleneck) {
  return detail::bottleneck_names.at(static_cast<std::size_t>(bottleneck));
}
PENSTOCK_INLINE const char* to_string(VerdictKind kind) {
  return detail::verdict_names.at(static_cast<std::size_t>(kind));
}

}  // namespace penstock
