// SPDX-License-Identifier: Apache-2.0

// The last rung, whole, in this process (its main is compiled as `last_rung`): what a step of it
// calls. Two runs that differ by a number of steps differ by what these steps have called.

#include <cstdint>
#include <map>
#include <penstock/emulation.hpp>
#include <string>
#include <vector>

#include "../../../support/temporary_directory.hpp"
#include "support/catch.hpp"

int last_rung(int argc, char** argv);

namespace {

namespace emulation = penstock::emulation;
using penstock::test::TemporaryDirectory;

constexpr std::uint64_t kSteps = 40;  // more, of 5 an epoch
// At the end the pool of host memory waits for each block that is still being copied: none, some,
// all.
constexpr std::uint64_t kBlocks = 4;  // workers and device slots

struct Calls {
  emulation::CallClasses classes;
  std::map<std::string, std::uint64_t> functions;
};

Calls calls_of(const TemporaryDirectory& directory, std::uint64_t warmup, std::uint64_t steps) {
  const std::map<std::string, std::string> options = {{"--model", "resnet8"},
                                                      {"--image-size", "16"},
                                                      {"--batch", "4"},
                                                      {"--records", "20"},
                                                      {"--workers", "2"},
                                                      {"--cache", (directory / "set").string()},
                                                      {"--warmup", std::to_string(warmup)},
                                                      {"--steps", std::to_string(steps)}};
  std::vector<std::string> words{"last_rung"};
  for (const auto& [name, value] : options) words.insert(words.end(), {name, value});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());

  emulation::reset(emulation::options());
  REQUIRE(last_rung(static_cast<int>(arguments.size()), arguments.data()) == 0);
  Calls calls{emulation::call_classes(), {}};
  for (const emulation::CallCount& count : emulation::calls())
    calls.functions[count.function] = count.calls;
  return calls;
}

/// What differs, for people.
std::string differences(Calls few, const Calls& many) {
  std::string text;
  for (const auto& [function, calls] : many.functions)
    if (few.functions[function] != calls)
      text += function + ": " + std::to_string(few.functions[function]) + " and " +
              std::to_string(calls) + "\n";
  return text;
}

TEST_CASE("a step of the last rung allocates nothing, creates nothing and never blocks",
          "[resnet][traffic]") {
  const TemporaryDirectory directory;
  const Calls few = calls_of(directory, 4, 3);
  const auto check = [&](const Calls& many, std::uint64_t created) {
    INFO(differences(few, many));
    CHECK(many.classes.launching >= few.classes.launching + kSteps);
    CHECK(many.classes.allocating == few.classes.allocating);
    CHECK(many.classes.creating == few.classes.creating + created);
    CHECK(many.classes.blocking <= few.classes.blocking + kBlocks);
  };
  check(calls_of(directory, 4 + kSteps, 3), 0);
  // Two pairs of events time a measured step: they are made before, and destroyed after.
  check(calls_of(directory, 4, 3 + kSteps), kSteps * 2 * 2 * 2);
}

}  // namespace
