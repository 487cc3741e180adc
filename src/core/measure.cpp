// SPDX-License-Identifier: Apache-2.0
//
// The room detail/measure, compiled.

#include <penstock/detail/measure/markers.hpp>
#include <penstock/detail/measure/stats.hpp>
#include <penstock/detail/measure/stats_export.hpp>
#include <penstock/detail/measure/tuning.hpp>
#include <penstock/detail/measure/verdict.hpp>
