// SPDX-License-Identifier: Apache-2.0
#pragma once

// The stage that an event belongs to: the innermost range around it on its thread, or, for what
// runs on a stream, around the call that put it there.

#include <cstdint>
#include <vector>

#include "activity.hpp"

namespace penstock::trace::detail {

/// For each event an index into Timeline::names; of a range its own name; 0 outside of any range.
/// O(n log n).
std::vector<std::uint32_t> stages(const Activity& activity);

}  // namespace penstock::trace::detail
