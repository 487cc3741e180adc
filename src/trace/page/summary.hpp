// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the page knows beside its events, as JSON: where they are from, names, tracks, the report's
// tables, the findings. Times in nanoseconds since the timeline's begin.

#include <penstock/trace/views.hpp>

#include <string>

#include "columns.hpp"

namespace penstock::trace::detail {

std::string page_summary(const Timeline& timeline, const Report& report,
                         const std::vector<Finding>& findings,
                         const std::vector<EventClass>& classes);

}  // namespace penstock::trace::detail
