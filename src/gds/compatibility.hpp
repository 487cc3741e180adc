// SPDX-License-Identifier: Apache-2.0
#pragma once

// why_compatible(): whether cuFile can read a file directly, from what it and the system tell.

#include <penstock/version.hpp>
#include <string>

#include "cufile_driver.hpp"

namespace penstock::inline PENSTOCK_ABI::gds {

/// Why cuFile would read the file of `descriptor` in its compatibility mode; empty: it is direct.
/// `file_system`: the magic number of its kind. `is_past_cache`: the descriptor has O_DIRECT.
std::string why_compatible(const CufileDriver& driver, long file_system, bool is_past_cache);

}  // namespace penstock::gds
