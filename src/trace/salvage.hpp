// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a Session has recorded so far, for a process that is about to be killed.

#include <optional>
#include <penstock/trace/timeline.hpp>

namespace penstock::trace::detail {

/// Waits for no device. Empty: no session records, or it recorded nothing. To be called in a forked
/// copy of the process, where a lock that another thread held stays locked: set an alarm.
std::optional<Timeline> salvage();

}  // namespace penstock::trace::detail
