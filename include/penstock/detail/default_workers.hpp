// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The number of cores that this process may use, minus one for the thread that feeds the device;
/// at least 1. Ranks that no launcher has bound share the cores.
int default_workers();

}  // namespace penstock::detail
