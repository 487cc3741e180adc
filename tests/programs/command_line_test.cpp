// SPDX-License-Identifier: Apache-2.0

// src/programs/command_line.hpp: empty values, entries of lists, and numbers.

#include "programs/command_line.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "support.hpp"

namespace {

using penstock::programs::finite;
using penstock::programs::whole_number;
using penstock::test::has;
using penstock::test::message_of;

struct Values {
  std::string file;
  std::vector<int> list;
  std::vector<std::string> inputs;
  std::uint64_t size = 0;
  double rate = 0;
  bool flag = false;
  std::string place;              // of a subcommand
  std::vector<std::string> rest;  // of another program
};

/// What is wrong with the words; empty: nothing.
std::string parse(const std::vector<std::string>& words, Values& values, bool prefix = false) {
  CLI::App app("test");
  app.add_option("--file,-f", values.file);
  app.add_option("--list", values.list)->delimiter(',');
  app.add_option("--size", values.size)->transform(whole_number(1));
  app.add_option("--rate", values.rate)->check(finite(-1, 10));
  app.add_flag("--flag", values.flag);
  if (prefix)
    app.prefix_command();
  else
    app.add_option("inputs", values.inputs);
  app.add_subcommand("again")->add_option("place", values.place);
  const std::string what = message_of([&] { penstock::programs::parse(app, words); });
  values.rest = app.remaining();
  return what;
}
std::string parse(const std::vector<std::string>& words) {
  Values values;
  return parse(words, values);
}

TEST_CASE("a value that is empty is refused, by the option's name") {
  const std::string why = "--file: the value is empty";
  CHECK(has(parse({"--file", ""}), why));
  CHECK(has(parse({"--file="}), why));
  CHECK(has(parse({"--file=", "--flag"}), why));
  CHECK(has(parse({"-f", ""}), "-f: the value is empty"));
  CHECK(has(parse({"--flag", "--list", ""}), "--list: the value is empty"));
  CHECK(has(parse({"--rate=1", ""}), "one of them is empty"));
  CHECK(has(parse({"in", ""}), "one of them is empty"));
  CHECK(has(parse({"--", ""}), "one of them is empty"));
}

TEST_CASE("an entry of a list that is empty is refused") {
  for (const char* list : {"1,,2", ",1", "1,", ","}) {
    CHECK(has(parse({"--list", list}), "--list: an entry of " + std::string(list) + " is empty"));
    CHECK(has(parse({"--list=" + std::string(list)}), "an entry of"));
  }
  CHECK(has(parse({"--list", "1", "2,"}), "an entry of 2, is empty"));
}

TEST_CASE("what is not empty is taken as it is") {
  Values values;
  CHECK(parse({"--file=a,,b", "--list", "1,2", "3", "--rate", "-0.5", "--flag", "in", "-"},
              values) == "");
  CHECK(values.file == "a,,b");
  CHECK(values.list == std::vector{1, 2, 3});
  CHECK(values.inputs == std::vector<std::string>{"in", "-"});
  CHECK(values.rate == -0.5);
  CHECK(values.flag);
}

TEST_CASE("subcommands are looked at too, and another program's words are not") {
  CHECK(has(parse({"--flag", "again", ""}), "one of them is empty"));
  Values values;
  CHECK(parse({"--file", "a", "program", "", "--file="}, values, true) == "");
  CHECK(values.rest == std::vector<std::string>{"program", "", "--file="});
  CHECK(has(parse({"--file", "", "program"}, values, true), "--file: the value is empty"));
}

TEST_CASE("whole numbers: no clamping, no octal, and a message of one line") {
  for (const char* wrong : {"0", "-1", "18446744073709551616", "99999999999999999999999",
                            "9223372036854775808", "1e3", "0x10", "1.5", "nan", "1 "}) {
    const std::string why = parse({"--size", wrong});
    CHECK(has(why, "--size: Value " + std::string(wrong) +
                       " is not a whole number from 1 to 9223372036854775807"));
    CHECK(why.size() < 120);
  }
  for (const auto& [word, number] :
       {std::pair<std::string, std::uint64_t>{"9223372036854775807", INT64_MAX},
        {"1", 1},
        {"010", 10}}) {
    Values values;
    CHECK(parse({"--size", word}, values) == "");
    CHECK(values.size == number);
  }
}

TEST_CASE("finite numbers: within their range, and numbers at all") {
  for (const char* wrong : {"nan", "inf", "-1.5", "11", "x"})
    CHECK(has(parse({"--rate", wrong}), "--rate"));
  CHECK(finite(0)("-1") == "Value -1 is not a finite number from 0 on");
  CHECK(finite(0)("1e308").empty());
}

}  // namespace
