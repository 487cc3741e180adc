// SPDX-License-Identifier: Apache-2.0

// TfExample over messages that are written here byte by byte. tables_test.py has those of others.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <penstock/tf_example.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/tf_records.hpp"
#include "support/thrown.hpp"

namespace penstock::tf_example_test {
namespace {

using namespace std::string_literals;
using test::as_text;
using test::bytes_list;
using test::example;
using test::feature;
using test::float_list;
using test::int64_list;
using test::Mentions;
using test::message;
using test::thrown;
using test::varint;

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

TfExample parsed(const std::string& bytes) {
  return TfExample(std::as_bytes(std::span(bytes)));
}

template <class T>
std::vector<T> values(const TfFeature& feature) {
  std::vector<T> all(static_cast<std::size_t>(feature.size()));
  feature.copy(std::span<T>(all));
  return all;
}

std::string failure(const std::string& bytes) {
  return thrown<std::runtime_error>([&] { parsed(bytes); });
}

TEST_CASE("TfExample has the features by their names", "[tf_example]") {
  const bool packed = GENERATE(true, false);
  const std::vector<std::int64_t> ids{0, 1, 127, 128, 300, -1, kLeast, 1LL << 40};
  const std::vector<float> weights{0, -1.5f, 3e38f};
  const std::string bytes =
      example(feature("ids", 3, int64_list(ids, packed)) + feature("none", 3, "") +
              feature("weights", 2, float_list(weights, packed)) +
              feature("texts", 1, bytes_list({"one", "", "three"})) +
              message(1, message(1, "unset")) + message(1, message(1, "empty") + message(2, "")));
  const TfExample record = parsed(bytes);
  CHECK(record["ids"].kind() == TfFeature::Kind::int64s);
  CHECK(record["ids"].size() == 8);
  CHECK(values<std::int64_t>(record["ids"]) == ids);
  CHECK(values<float>(record["weights"]) == weights);
  CHECK(record["none"].size() == 0);
  CHECK(values<std::int32_t>(record["none"]).empty());
  CHECK(record["texts"].size() == 3);
  CHECK(as_text(record["texts"].bytes()) == "one");
  CHECK(record["texts"].bytes(1).empty());
  CHECK(as_text(record["texts"].bytes(2)) == "three");
  for (const char* name : {"unset", "empty"}) {
    CHECK(record[name].kind() == TfFeature::Kind::none);
    CHECK(record[name].size() == 0);
  }
  CHECK_FALSE(record.find("other"));
  std::string names;
  record.for_each([&](const TfFeature& each) { names += std::string(each.name()) + " "; });
  CHECK(names == "ids none weights texts unset empty ");
}

TEST_CASE("TfExample takes what Protocol Buffers allow", "[tf_example]") {
  CHECK_FALSE(parsed("").find("a"));
  CHECK_FALSE(parsed(example("")).find("a"));
  // Fields that this program does not know, of every type, at every level.
  const std::string unknown = varint(9 << 3) + varint(~0ull) + varint(9 << 3 | 1) + "12345678" +
                              varint(9 << 3 | 5) + "1234" + message(9, "bytes");
  const std::string list = unknown + int64_list({5}) + int64_list({6, 7}, false) + unknown +
                           int64_list({8, 9});  // packed or not, in turn
  const std::string entry = unknown + message(2, unknown + message(3, list)) + message(1, "a");
  const std::string bytes =
      unknown + message(1, unknown + message(1, entry) + feature("b", 3, int64_list({1})) +
                               feature("b", 3, int64_list({2})));
  CHECK(values<std::int64_t>(parsed(bytes)["a"]) == std::vector<std::int64_t>{5, 6, 7, 8, 9});
  CHECK(values<std::int64_t>(parsed(bytes)["b"]) == std::vector<std::int64_t>{2});  // the last one
}

TEST_CASE("TfExample allocates nothing", "[tf_example]") {
  const std::string bytes = example(feature("ids", 3, int64_list({1, 2, 3})) +
                                    feature("text", 1, bytes_list({"a text of some bytes"})));
  std::vector<std::int32_t> ids(3);
  const std::uint64_t before = test::allocations_of_this_thread();
  const TfExample record = parsed(bytes);
  record["ids"].copy(std::span<std::int32_t>(ids));
  const std::size_t size = record["text"].bytes().size();
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(ids == std::vector<std::int32_t>{1, 2, 3});
  CHECK(size == 20);
}

TEST_CASE("TfFeature names what is asked for, and what there is", "[tf_example]") {
  const std::string bytes =
      example(feature("ids", 3, int64_list({1, 1LL << 31})) + feature("x", 2, float_list({1, 2})) +
              feature("t", 1, bytes_list({"a"})) + message(1, message(1, "n")));
  const TfExample record = parsed(bytes);
  std::vector<float> floats(2);
  std::vector<std::int32_t> ints(2);
  std::vector<std::int64_t> longs(3);
  const auto error = [](const auto& call) { return thrown<std::runtime_error>(call); };
  CHECK_THAT(error([&] { static_cast<void>(record["y"]); }),
             Mentions("TfExample: there is no feature \"y\""));
  CHECK_THAT(error([&] { record["ids"].copy(std::span<float>(floats)); }),
             Mentions("TfExample: feature \"ids\" has int64s, and floats are asked for"));
  CHECK_THAT(error([&] { record["x"].copy(std::span<std::int32_t>(ints)); }),
             Mentions("feature \"x\" has floats, and int64s are asked for"));
  CHECK_THAT(error([&] { record["x"].bytes(); }), Mentions("has floats, and bytes are asked for"));
  CHECK_THAT(error([&] { record["n"].bytes(); }), Mentions("has no list, and bytes are asked for"));
  CHECK_THAT(error([&] { record["t"].bytes(1); }), Mentions("feature \"t\" has no value 1"));
  CHECK_THAT(error([&] { record["t"].bytes(-1); }), Mentions("has no value -1"));
  CHECK_THAT(error([&] { record["ids"].copy(std::span<std::int64_t>(longs)); }),
             Mentions("has 2 values, and 3 are asked for"));
  CHECK_THAT(error([&] { record["ids"].copy(std::span<std::int64_t>(longs).first(1)); }),
             Mentions("has 2 values, and 1 are asked for"));
  CHECK_THAT(error([&] { record["ids"].copy(std::span<std::int32_t>(ints)); }),
             Mentions("has a value that does not fit into 32 bits"));
}

TEST_CASE("TfExample refuses bytes that are no such message", "[tf_example]") {
  const std::string wrong = "the record is no tf.train.Example: ";
  const std::string good = example(feature("a", 3, int64_list({1})));
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes)
    CHECK_THAT(failure(good.substr(0, bytes)), Mentions(wrong + "it is cut within a field"));
  CHECK_THAT(failure(good + good), Mentions(wrong + "it has its features twice"));
  CHECK_THAT(failure("\x0b"), Mentions(wrong + "a field has an unknown type"));  // a group
  CHECK_THAT(failure("\0\0"s), Mentions(wrong + "a field has no number"));
  CHECK_THAT(failure(varint(1ull << 35 | 2)), Mentions("a field has no number"));
  CHECK_THAT(failure("\x08" + std::string(10, '\xff')), Mentions("a number has more than 64 bits"));
  CHECK_THAT(failure("\x08" + std::string(9, '\xff') + "\x02"), Mentions("more than 64 bits"));
  CHECK(failure("\x08" + std::string(9, '\xff') + "\x01") == "(nothing was thrown)");
  CHECK_THAT(failure("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), Mentions("it is cut"));
  const std::string twice = message(1, message(1, "a") + message(2, "") + message(2, ""));
  CHECK_THAT(failure(example(twice)), Mentions(wrong + "a feature has two values"));
  const std::string lists = message(2, message(3, "") + message(1, ""));
  CHECK_THAT(failure(example(message(1, message(1, "a") + lists))),
             Mentions("feature \"a\" has two lists of values"));

  const auto damaged = [](std::uint64_t kind, const std::string& list) {
    const std::string bytes = example(feature("a", kind, list));
    return thrown<std::runtime_error>([&] { parsed(bytes)["a"].size(); });
  };
  CHECK_THAT(damaged(3, message(1, "\xff")), Mentions("feature \"a\" is damaged: it is cut"));
  CHECK_THAT(damaged(3, varint(1 << 3 | 5) + "1234"), Mentions("a value has another type"));
  CHECK_THAT(damaged(2, message(1, "12345")), Mentions("it is cut within a float"));
  CHECK_THAT(damaged(1,
                     "\x0a\x05"
                     "abc"),
             Mentions("feature \"a\" is damaged: it is cut"));
  const std::string values = example(feature("a", 1, bytes_list({"x"}) + "\x0a\x05z"));
  CHECK(as_text(parsed(values)["a"].bytes(0)) == "x");
  CHECK_THAT(thrown<std::runtime_error>([&] { parsed(values)["a"].bytes(1); }),
             Mentions("feature \"a\" is damaged: it is cut"));
}

}  // namespace
}  // namespace penstock::tf_example_test
