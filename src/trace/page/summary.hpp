// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes the page's data besides the events as JSON: origin, names, tracks, the report's tables and
// the findings. Times are nanoseconds since the timeline's begin.

#include <penstock/trace/views.hpp>
#include <penstock/version.hpp>

#include <string>

#include "columns.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

std::string page_summary(const Timeline& timeline, const Report& report,
                         const std::vector<Finding>& findings,
                         const std::vector<EventClass>& classes);

}  // namespace penstock::trace::detail
