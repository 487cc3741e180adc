// SPDX-License-Identifier: Apache-2.0
//
// Compiles the functions of detail/observe.

#include <penstock/detail/observe/markers.hpp>
#include <penstock/detail/observe/stats.hpp>
#include <penstock/detail/observe/stats_export.hpp>
#include <penstock/detail/observe/tuning.hpp>
#include <penstock/detail/observe/verdict.hpp>
