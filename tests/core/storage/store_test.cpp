// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <cstddef>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/store.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::Mentions;
using test::thrown;

TEST_CASE("a file with the descriptor of a closed standard input is one of this machine",
          "[store]") {
  const test::TemporaryDirectory directory;
  test::write_file(directory / "a", "abc");
  const int standard_input = ::dup(0);
  ::close(0);
  {
    const detail::StoreFile file("Store", File::open(directory / "a"));
    CHECK(file.file.descriptor() == 0);
    CHECK(file.is_local());
  }
  if (standard_input < 0) return;
  ::dup2(standard_input, 0);
  ::close(standard_input);
}

TEST_CASE("a StoreError has the kind of store, the file, the reason and the sample", "[store]") {
  const StoreError error("TarShards", "a/b.tar", "it is cut", 7);
  CHECK(std::string(error.what()) == "TarShards: a/b.tar: it is cut");
  CHECK(error.file() == "a/b.tar");
  CHECK(error.sample() == 7u);
  CHECK_FALSE(StoreError("TarShards", "b.tar", "it is cut").sample().has_value());
}

TEST_CASE("a StoreError shows characters as they are, and what is none as its bytes", "[store]") {
  const auto shown = [](const std::string& text) {
    const std::string what = StoreError("S", "f", text).what();
    return what.substr(std::string("S: f: ").size());
  };
  for (const char* text :
       {" ~", "\xC2\xA0", "\xC3\xA4", "\xDF\xBF", "\xE0\xA0\x80", "\xE2\x82\xAC", "\xED\x9F\xBF",
        "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    CHECK(shown(text) == text);
  CHECK(shown("a\nb\x7F\x1B") == "a\\x0Ab\\x7F\\x1B");
  CHECK(shown(std::string("\0", 1)) == "\\x00");
  CHECK(shown("\x80z") == "\\x80z");                           // begins no character
  CHECK(shown("\xC3") == "\\xC3");                             // is cut
  CHECK(shown("\xE2\x82") == "\\xE2\\x82");                    // likewise
  CHECK(shown("\xC3z") == "\\xC3z");                           // has another one in it
  CHECK(shown("\xC1\xBF") == "\\xC1\\xBF");                    // is too long
  CHECK(shown("\xE0\x9F\xBF") == "\\xE0\\x9F\\xBF");           // likewise
  CHECK(shown("\xF0\x8F\xBF\xBF") == "\\xF0\\x8F\\xBF\\xBF");  // likewise
  CHECK(shown("\xED\xA0\x80") == "\\xED\\xA0\\x80");           // is half of a pair of UTF-16
  CHECK(shown("\xF4\x90\x80\x80") == "\\xF4\\x90\\x80\\x80");  // is beyond the last character
  CHECK(shown("\xF5\x80\x80\x80") == "\\xF5\\x80\\x80\\x80");  // likewise
  CHECK(shown("\xC2\x9B") == "\\xC2\\x9B");                    // controls terminals
  CHECK(StoreError("S", "\xFF", "w").file() == "\xFF");
}

TEST_CASE("scratch memory grows and never shrinks, and not beyond half of the memory", "[store]") {
  std::vector<std::byte> scratch;
  CHECK(detail::room_in(scratch, 100).size() == 100);
  CHECK(detail::room_in(scratch, 10).size() == 10);
  CHECK(scratch.size() == 100);
  CHECK_THAT(thrown<std::system_error>([&] { detail::room_in(scratch, ~0ull); }),
             Mentions("18446744073709551615 bytes are more than half of the memory"));
}

}  // namespace
}  // namespace penstock
