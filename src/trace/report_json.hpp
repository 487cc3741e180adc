// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reports and findings as JSON: for programs, and the same within the page.

#include <penstock/detail/observe/json.hpp>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/report.hpp>

#include <vector>

namespace penstock::trace::detail {

using penstock::detail::JsonText;

/// The members of an object that is open.
void append(JsonText& json, const Origin& origin);
/// The same, without the origin. Moments are nanoseconds since `zero`.
void append(JsonText& json, const Report& report, Time zero);
/// An array of objects.
void append(JsonText& json, const std::vector<Finding>& findings, Time zero);

}  // namespace penstock::trace::detail
