// SPDX-License-Identifier: Apache-2.0
#pragma once

// The page's own files, which embed.cmake compiles into the library.

#include <penstock/version.hpp>
#include <span>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

extern const std::string_view kPage;                      ///< page.html
extern const std::string_view kStyle;                     ///< page.css
extern const std::span<const std::string_view> kScripts;  ///< the parts of one script, in order

}  // namespace penstock::trace::detail
