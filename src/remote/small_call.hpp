// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/version.hpp>
#include <string>

#include "http_call.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// Makes small calls by libcurl, on the thread that asks: for credentials and listings. `ca_file`:
/// as Options::ca_file. An answer of more than 16 MiB is an error.
HttpFunction small_calls(std::string ca_file);

}  // namespace penstock::remote
