// SPDX-License-Identifier: Apache-2.0

#include <optional>
#include <penstock/detail/storage/known_bytes.hpp>
#include <span>
#include <string>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

std::string what_is(const std::string& text) {
  const std::optional<KnownBytes> known = known_bytes(std::as_bytes(std::span(text)));
  return known ? std::string(known->what) : "?";
}

TEST_CASE("known_bytes needs no more than the bytes that tell", "[known_bytes]") {
  CHECK(what_is("BZh91AY&SY") == "compressed with bzip2");
  CHECK(what_is("BZh91AY&S") == "?");
  CHECK(what_is("BZh9\x17\x72\x45\x38\x50\x90") == "compressed with bzip2");  // of no bytes
  CHECK(what_is("BZh9 is text") == "?");
  CHECK(what_is(std::string(257, '.') + "ustar") == "a tar");
  CHECK(what_is(std::string(257, '.') + "usta") == "?");
}

}  // namespace
}  // namespace penstock::detail
