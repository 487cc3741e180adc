// SPDX-License-Identifier: Apache-2.0
#pragma once

// The stage of an event is the innermost range around it on its thread. For an event on a stream,
// it is the innermost range around the call that submitted it.

#include <cstdint>
#include <penstock/version.hpp>
#include <vector>

#include "activity.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns an index into Timeline::names for each event: for a range its own name, and 0 outside of
/// any range. O(n log n).
std::vector<std::uint32_t> stages(const Activity& activity);

}  // namespace penstock::trace::detail
