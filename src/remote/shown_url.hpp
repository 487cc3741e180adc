// SPDX-License-Identifier: Apache-2.0
#pragma once

// What messages show of a URL: nothing that may be a secret.

#include <string>
#include <string_view>

namespace penstock::remote {

/// Without the query, the fragment, and what comes before the host.
std::string shown_url(std::string_view url);
/// scheme://host:port in lower case, without the port that the scheme has by itself: where a
/// request goes to.
std::string origin_of(std::string_view url);

}  // namespace penstock::remote
