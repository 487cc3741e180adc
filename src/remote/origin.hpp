// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/version.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::remote {

/// scheme://host:port of a URL in lower case, without the port that the scheme has by default:
/// where a request goes to.
std::string origin_of(std::string_view url);

}  // namespace penstock::remote
