// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <penstock/detail/storage/json_reader.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::detail::json_reader_test {
namespace {

using test::Mentions;
using test::thrown;

/// Takes any value; returns what is wrong.
std::string failure(std::string_view text) {
  return thrown<std::runtime_error>([&] {
    JsonReader json(text);
    json.skip();
    json.end();
  });
}

TEST_CASE("JsonReader reads objects, arrays, strings and numbers", "[json_reader]") {
  JsonReader json(
      R"( {"a" : [1, 20,18446744073709551615 ], "b":null,"c":"x","d":{"e":[ ]},"f":{}} )");
  std::string keys;
  std::vector<std::uint64_t> numbers;
  json.object([&](const std::string& key) {
    keys += key;
    if (key == "a")
      json.array([&] { numbers.push_back(json.number()); });
    else if (key == "b")
      CHECK(json.null());
    else if (key == "c")
      CHECK((!json.null() && json.string() == "x"));
    else
      json.skip();
  });
  json.end();
  CHECK(keys == "abcdf");
  CHECK(numbers == std::vector<std::uint64_t>{1, 20, ~0ull});
}

TEST_CASE("JsonReader reads the escapes of strings", "[json_reader]") {
  const auto read = [](std::string_view text) { return JsonReader(text).string(); };
  CHECK(read(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
  CHECK(read(R"("\u0041\u00e4\u20AC\ud83d\uDE00")") == "A\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(read("\"\xC3\xA4\xF0\x9F\x98\x80\"") == "\xC3\xA4\xF0\x9F\x98\x80");
  CHECK(read(R"("\u0000")") == std::string(1, '\0'));
}

TEST_CASE("JsonReader takes every value of JSON", "[json_reader]") {
  for (const char* text :
       {"null", "true", "false", "0", "-0", "12", "-1.5", "0.25e10", "1E+2", "1e-2", "\"\"", "[]",
        "{}", "[[],{}, [1 , \"a\"]]", "{\"a\":{\"a\":1}}", "\t[\r\n1]\n"})
    CHECK(failure(text) == "(nothing was thrown)");
}

TEST_CASE("JsonReader refuses what is no JSON, and says where", "[json_reader]") {
  for (const char* text : {"",
                           " ",
                           "nul",
                           "nulls",
                           "True",
                           "01",
                           "+1",
                           "1.",
                           ".5",
                           "1e",
                           "1e+",
                           "--1",
                           "0x1",
                           "NaN",
                           "[1",
                           "[1 2]",
                           "[,]",
                           "[1,]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{1:1}",
                           "\"a",
                           "\"\\",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u123g\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"\\x0041\"",
                           "\"\\ud800dc00\"",
                           "\"\xff\"",
                           "\"\n\"",
                           "]",
                           "1 1",
                           "'a'"})
    CHECK_THAT(failure(text), Mentions("byte "));
  CHECK(failure("[1, 2 3]") == "byte 6: ']' is missing");
  CHECK(failure("[1] x") == "byte 4: there is more behind its end");
  CHECK_THAT(failure(std::string(64, '[') + std::string(64, ']')),
             Mentions("(nothing was thrown)"));
  CHECK_THAT(failure(std::string(65, '[') + std::string(65, ']')),
             Mentions("more than 64 values are in each other"));
  for (const char* text : {"-1", "1.5", "1e2", "01", "\"1\"", "18446744073709551616", ""})
    CHECK_THAT(thrown<std::runtime_error>([&] { JsonReader(text).number(); }),
               Mentions("is no whole number"));
}

}  // namespace
}  // namespace penstock::detail::json_reader_test
