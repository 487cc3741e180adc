// SPDX-License-Identifier: Apache-2.0
#pragma once

// Returns what a Session has recorded so far, for a process that is about to be killed.

#include <optional>
#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Waits for no device. Returns nothing if no session records, or if it recorded nothing. Call it
/// in a forked copy of the process. A lock that another thread held stays locked there, so set an
/// alarm.
std::optional<Timeline> salvage();

}  // namespace penstock::trace::detail
