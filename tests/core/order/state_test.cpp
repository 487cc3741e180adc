// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <penstock/state.hpp>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::Mentions;
using test::read_file;
using test::TemporaryDirectory;
using test::thrown;
using test::write_file;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

constexpr State example{.epoch = 3,
                        .batch = 17,
                        .seed = 7,
                        .samples = 50000,
                        .order = 2,
                        .batches = 49,
                        .batch_size = 256,
                        .world_size = 4};
constexpr State example_start{
    .seed = 7, .samples = 50000, .order = 2, .batches = 49, .batch_size = 256, .world_size = 4};
const std::string example_text =
    "penstock-state 2 epoch=3 batch=17 seed=7 samples=50000 order=2 batches=49 batch_size=256 "
    "world_size=4 part_batch=0 part_samples=0 end";

std::string refusal(std::string_view text) {
  return thrown<std::invalid_argument>([&] { static_cast<void>(State::parse(text)); });
}

/// `text` is refused, or it is exactly what to_string writes for the state that it was read as.
bool is_strict(std::string_view text) {
  try {
    return to_string(State::parse(text)) == text;
  } catch (const std::invalid_argument&) {
    return true;
  }
}

std::string replaced(std::string text, const std::string& part, const std::string& by) {
  return text.replace(text.find(part), part.size(), by);
}

TEST_CASE("State: the text is one line that says all", "[state]") {
  CHECK(to_string(example) == example_text);
  CHECK(State::parse(example_text) == example);
  std::ostringstream out;
  out << example;
  CHECK(out.str() == example_text);
}

TEST_CASE("State: every state comes back from its text", "[state]") {
  std::mt19937_64 random(20240229);
  const auto number = [&]() -> std::uint64_t {
    constexpr std::uint64_t kSpecial[] = {0, 1, 9, 10, kMost, kMost - 1, kMost / 10};
    const std::uint64_t drawn = random();
    return drawn % 3 == 0 ? kSpecial[drawn / 3 % 7] : random() >> (drawn / 3 % 64);
  };
  for (int i = 0; i < 20'000; ++i) {
    const State state{number(), number(), number(), number(), number(),
                      number(), number(), number(), number(), number()};
    const std::string text = to_string(state);
    REQUIRE(State::parse(text) == state);
    REQUIRE(text.size() <= 320);
  }
  const State largest{kMost, kMost, kMost, kMost, kMost, kMost, kMost, kMost, kMost};
  CHECK(State::parse(to_string(largest)) == largest);
  CHECK(to_string(largest).size() <= 320);
}

TEST_CASE("State: a text that was cut short, anywhere, is refused", "[state]") {
  for (std::size_t size = 0; size < example_text.size(); ++size)
    CHECK_THROWS_AS(State::parse(example_text.substr(0, size)), std::invalid_argument);
}

TEST_CASE("State: a text with any one character changed, added or removed is refused or exact",
          "[state]") {
  for (std::size_t place = 0; place < example_text.size(); ++place) {
    for (int code = 0; code < 256; ++code) {
      const char character = static_cast<char>(code);
      std::string changed = example_text, longer = example_text;
      changed[place] = character;
      longer.insert(place, 1, character);
      REQUIRE(is_strict(changed));
      REQUIRE(is_strict(longer));
    }
    std::string shorter = example_text;
    REQUIRE(is_strict(shorter.erase(place, 1)));
  }
}

TEST_CASE("State: a refusal says what is wrong, and shows the text", "[state]") {
  const auto [part, by, why] = GENERATE(table<std::string, std::string, std::string>({
      {"penstock-state", "penstock", "does not begin with penstock-state"},
      {"state 2", "state 1", "format version \"1\", this is version 2"},
      {"state 2", "state  2", "format version \"\""},
      {"epoch=3 batch=17", "batch=17 epoch=3", "epoch= is missing"},
      {" seed=7", "", "seed= is missing"},
      {" seed=7", " seed=7 seed=7", "samples= is missing"},
      {"seed=7", "sEed=7", "seed= is missing"},
      {"seed=7", "seed 7", "seed= is missing"},
      {"seed=7", "seed=", "seed= is followed by no number"},
      {"seed=7", "seed=-7", "seed= is followed by no number"},
      {"seed=7", "seed=+7", "seed= is followed by no number"},
      {"seed=7", "seed=07", "seed= is followed by no number"},
      {"seed=7", "seed=7.0", "seed= is followed by no number"},
      {"seed=7", "seed=0x7", "seed= is followed by no number"},
      {"seed=7", "seed=\t7", "seed= is followed by no number"},
      {"seed=7", "seed=18446744073709551616", "no number of 64 bits"},
      {"seed=7", "seed=99999999999999999999999", "no number of 64 bits"},
      {" end", "", "does not end with end"},
      {"end", "end ", "does not end with end"},
      {"end", "end\n", "does not end with end"},
      {"end", "end more", "does not end with end"},
      {"penstock-state", " penstock-state", "does not begin"},
  }));
  const std::string text = replaced(example_text, part, by);
  CHECK_THAT(refusal(text), Mentions(why) && Mentions("State::parse: "));
  if (text.find_first_of("\n\t") == std::string::npos) CHECK_THAT(refusal(text), Mentions(text));
}

TEST_CASE("State: a refusal is fit to print, whatever the text", "[state]") {
  CHECK_THAT(refusal(""), Mentions("\"\""));
  CHECK_THAT(refusal(std::string_view("\n\0\x7f\xff", 4)), Mentions("\"\\x0a\\x00\\x7f\\xff\""));
  for (const char character : {'x', '\n'}) {
    const std::string text = refusal(std::string(1'000'000, character));
    CHECK(text.size() < 500);
    CHECK_THAT(text, Mentions("...\""));
  }
}

TEST_CASE("State: what is saved is loaded again, and is one line", "[state]") {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "state.txt";
  example.save(path);
  CHECK(read_file(path) == example_text + "\n");
  CHECK(State::load(path) == example);
  State next = example;
  for (next.batch = 18; next.batch < 21; ++next.batch) next.save(path.string());
  CHECK(State::load(path.string()).batch == 20);
  const std::filesystem::directory_iterator all(path.parent_path());
  CHECK(std::distance(begin(all), end(all)) == 1);
}

TEST_CASE("State: a name without a directory is of the current one", "[state]") {
  const TemporaryDirectory directory;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path((directory / "x").parent_path());
  example.save("state.txt");
  CHECK(State::load("state.txt") == example);
  std::filesystem::current_path(before);
  CHECK(State::load(directory / "state.txt") == example);
}

TEST_CASE("State: a line that was written otherwise is loaded, with and without its end",
          "[state]") {
  const TemporaryDirectory directory;
  const std::string end = GENERATE("", "\n");
  write_file(directory / "state.txt", example_text + end);
  CHECK(State::load(directory / "state.txt") == example);
}

TEST_CASE("State: a file that is no state is refused by its name", "[state]") {
  const TemporaryDirectory directory;
  const auto [text, why] = GENERATE_REF(table<std::string, std::string>({
      {"", "does not begin with penstock-state: \"\""},
      {example_text.substr(0, 50), "order= is missing"},
      {example_text + "\n\n", "does not end with end"},
      {example_text + "\n" + example_text + "\n", "does not end with end"},
      {example_text + "\r\n", "does not end with end"},
      {std::string(1'000'000, 'x'), "does not begin with penstock-state"},
  }));
  write_file(directory / "state.txt", text);
  const std::string told =
      thrown<std::invalid_argument>([&] { State::load(directory / "state.txt"); });
  CHECK_THAT(
      told, Mentions("State::load: " + (directory / "state.txt").string() + ": ") && Mentions(why));
  CHECK(told.size() < 700);
}

TEST_CASE("State: a file that cannot be read or written is a system error with its name",
          "[state]") {
  const TemporaryDirectory directory;
  const auto code_of = [](const auto& work, const std::string& call, const auto& path) {
    try {
      work();
    } catch (const std::system_error& error) {
      CHECK_THAT(error.what(), Mentions(call + path.string() + ": "));
      const std::string what = error.what(), reason = error.code().message();
      CHECK(what.find(reason) == what.rfind(reason));
      CHECK(what.ends_with(": " + reason));
      return error.code();
    }
    return std::error_code();
  };
  const auto loads = [&](const std::filesystem::path& path) {
    return code_of([&] { State::load(path); }, "State::load: ", path);
  };
  const auto saves = [&](const std::filesystem::path& path) {
    return code_of([&] { example.save(path); }, "State::save: ", path);
  };
  CHECK(loads(directory / "none.txt") == std::errc::no_such_file_or_directory);
  CHECK(loads((directory / "x").parent_path()) == std::errc::is_a_directory);
  CHECK(saves(directory / "none/state.txt") == std::errc::no_such_file_or_directory);
  std::filesystem::create_directory(directory / "folder");
  CHECK(saves(directory / "folder") == std::errc::is_a_directory);
  const std::filesystem::directory_iterator all((directory / "x").parent_path());
  CHECK(std::distance(begin(all), end(all)) == 1);
  CHECK_THAT(thrown<std::system_error>([] { State::load("a\nb"); }), Mentions("a\\x0Ab: "));
}

TEST_CASE("State: a run goes on at a state of its own", "[state]") {
  CHECK(why_incompatible(example, example_start).empty());
  CHECK(why_incompatible(example_start, example_start).empty());
}

TEST_CASE("State: another seed or data set is refused everywhere", "[state]") {
  const State state = GENERATE(example, example_start);
  State start = example_start;
  SECTION("seed") {
    start.seed = 8;
    CHECK_THAT(why_incompatible(state, start),
               Mentions("of another run: seed is 7 there, and 8 here"));
  }
  SECTION("samples") {
    start.samples = 60000;
    CHECK_THAT(why_incompatible(state, start),
               Mentions("of another run: samples is 50000 there, and 60000 here"));
  }
  SECTION("samples that are not known any more") {
    start.samples = 0;
    CHECK_THAT(why_incompatible(state, start), Mentions("samples is 50000 there, and 0 here"));
  }
  CHECK_THAT(why_incompatible(state, start), Mentions(to_string(state)));
}

TEST_CASE("State: sizes and order may change at the edge of an epoch, and not within", "[state]") {
  const auto [number, name] =
      GENERATE(table<std::uint64_t State::*, std::string>({{&State::order, "order"},
                                                           {&State::batches, "batches"},
                                                           {&State::batch_size, "batch_size"},
                                                           {&State::world_size, "world_size"}}));
  State edge = example;
  edge.batch = 0;
  State start = example_start;
  start.*number += 100;
  CHECK(why_incompatible(edge, start).empty());
  State part = edge;  // At batch 0, too, where an earlier part of the epoch was delivered.
  part.part_samples = 100;
  for (const State& within : {example, part})
    CHECK_THAT(why_incompatible(within, start),
               Mentions("in the middle of an epoch: " + name + " is ") &&
                   Mentions("would be other samples") && Mentions("Sampler(options, state)"));
}

TEST_CASE("State: within an epoch, as much of it was delivered there as here", "[state]") {
  State continued = example_start;  // A run that began behind 20,000 samples, at batch 18.
  continued.epoch = 3, continued.batch = continued.part_batch = 18, continued.part_samples = 20000;
  State state = continued;
  state.batch = 20;
  CHECK(why_incompatible(state, continued).empty());
  CHECK_THAT(why_incompatible(state, example_start),
             Mentions("22048 of its samples are before it there, 20480 here"));
  state.part_batch = state.part_samples = 0;
  CHECK_THAT(why_incompatible(state, continued),
             Mentions("20480 of its samples are before it there"));
  state.epoch = 4;
  CHECK(why_incompatible(state, continued).empty());
  CHECK_THAT(why_incompatible(example, continued), Mentions("which begin at 18"));
  state.part_batch = 21;
  CHECK_THAT(why_incompatible(state, example_start), Mentions("which begin at 21"));
}

TEST_CASE("State: where nobody says how large the data set is, its batches tell", "[state]") {
  const State start{.seed = 7, .batches = 49};
  CHECK(why_incompatible({.epoch = 2, .seed = 7, .batches = 49}, start).empty());
  CHECK_THAT(why_incompatible({.epoch = 2, .seed = 7, .batches = 50}, start),
             Mentions("may be of another data set") && Mentions("batches is 50 there"));
}

TEST_CASE("State: a batch that is not there is refused", "[state]") {
  State state = example;
  state.batch = 48;
  CHECK(why_incompatible(state, example_start).empty());
  state.batch = 49;
  CHECK_THAT(why_incompatible(state, example_start),
             Mentions("at batch 49 of an epoch of 49 batches"));

  const State nothing{.seed = 7, .samples = 3};  // drop_last, and no batch is full
  CHECK(why_incompatible(nothing, nothing).empty());
  CHECK_THAT(why_incompatible({.batch = 1, .seed = 7, .samples = 3}, nothing),
             Mentions("at batch 1 of an epoch of 0"));
}

TEST_CASE("State: a number of a batch that overflows is refused", "[state]") {
  State state = example;
  state.epoch = kMost / 49;
  CHECK_THAT(why_incompatible(state, example_start), Mentions("beyond 2^62"));
  state.epoch = kMost;
  CHECK_THAT(why_incompatible(state, example_start), Mentions("beyond 2^62"));

  const State unbounded{.batches = kMost, .batch_size = 4};
  state = unbounded;
  state.batch = 1'000'000'000'000;
  CHECK(why_incompatible(state, unbounded).empty());
  state.batch = kMost - 1;
  CHECK_THAT(why_incompatible(state, unbounded), Mentions("beyond 2^62"));
  state.batch = 0;
  state.epoch = 1;
  CHECK_THAT(why_incompatible(state, unbounded), Mentions("beyond 2^62"));
}

}  // namespace
}  // namespace penstock
