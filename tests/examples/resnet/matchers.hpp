// SPDX-License-Identifier: Apache-2.0
#pragma once

// Catch2's Approx, and contains(text) for CHECK_THROWS_WITH, with version 2 and version 3.

#include <string>

#include "../../support/catch.hpp"

namespace resnet::test {

#if PENSTOCK_CATCH2_VERSION == 3
using Catch::Approx;
inline auto contains(const std::string& text) {
  return Catch::Matchers::ContainsSubstring(text);
}
#else
inline auto contains(const std::string& text) {
  return Catch::Matchers::Contains(text);
}
#endif

}  // namespace resnet::test
