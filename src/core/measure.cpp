// SPDX-License-Identifier: Apache-2.0
//
// The room detail/observe, compiled.

#include <penstock/detail/observe/markers.hpp>
#include <penstock/detail/observe/stats.hpp>
#include <penstock/detail/observe/stats_export.hpp>
#include <penstock/detail/observe/tuning.hpp>
#include <penstock/detail/observe/verdict.hpp>
