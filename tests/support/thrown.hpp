// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an exception says:
//
//   CHECK_THAT(thrown<std::invalid_argument>([&] { Layout<Images>{0}; }), Mentions("batch_size is
//   0"));

#include <string>

#include "catch.hpp"

namespace penstock::test {

/// The text of the E that `call` throws. Other exceptions pass through and fail the test.
template <class E, class Call>
std::string thrown(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

/// Matches a text that contains `part`. Catch2 renamed it in version 3.
inline auto Mentions(const std::string& part) {
#if PENSTOCK_CATCH2_VERSION == 3
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

}  // namespace penstock::test
