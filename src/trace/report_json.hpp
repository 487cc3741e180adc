// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes reports and findings as JSON, for programs and for the page.

#include <penstock/detail/observe/json.hpp>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/version.hpp>

#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

using penstock::detail::JsonText;

/// Appends the members to an open object.
void append(JsonText& json, const Origin& origin);
/// Appends the report without the origin. Moments are nanoseconds since `zero`.
void append(JsonText& json, const Report& report, Time zero);
/// Appends an array of objects.
void append(JsonText& json, const std::vector<Finding>& findings, Time zero);

}  // namespace penstock::trace::detail
