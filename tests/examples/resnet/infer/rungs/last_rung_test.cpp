// SPDX-License-Identifier: Apache-2.0

// The last rung, whole, in this process (its main is compiled as `last_rung`): what a request of it
// calls, whatever its size and whichever context has it. Two runs that differ by a number of
// requests differ by what these have called.

#include <cstdint>
#include <map>
#include <penstock/emulation.hpp>
#include <string>
#include <vector>

#include "../../../../support/temporary_directory.hpp"
#include "support/catch.hpp"

int last_rung(int argc, char** argv);

namespace {

namespace emulation = penstock::emulation;
using penstock::test::TemporaryDirectory;

constexpr std::uint64_t kRequests = 40;  // more
constexpr std::uint64_t kContexts = 2;

struct Calls {
  emulation::CallClasses classes;
  std::map<std::string, std::uint64_t> functions;
};

Calls calls_of(const TemporaryDirectory& directory, std::uint64_t warmup, std::uint64_t steps,
               bool uint8) {
  const std::map<std::string, std::string> options = {{"--model", "resnet8"},
                                                      {"--image-size", "8"},
                                                      {"--batches", "2,5"},
                                                      {"--requests", "5,1,2,4,3"},
                                                      {"--contexts", std::to_string(kContexts)},
                                                      {"--records", "20"},
                                                      {"--workers", "2"},
                                                      {"--cache", (directory / "set").string()},
                                                      {"--warmup", std::to_string(warmup)},
                                                      {"--steps", std::to_string(steps)}};
  std::vector<std::string> words{"last_rung"};
  for (const auto& [name, value] : options) words.insert(words.end(), {name, value});
  if (uint8) words.emplace_back("--uint8");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());

  emulation::reset(emulation::options());
  REQUIRE(last_rung(static_cast<int>(arguments.size()), arguments.data()) == 0);
  Calls calls{emulation::call_classes(), {}};
  for (const emulation::CallCount& count : emulation::calls())
    calls.functions[count.function] = count.calls;
  return calls;
}

/// The ends of pool and arenas wait for what may be in flight, block by block: no request's doing,
/// and fewer waits than one for each request that a run has more.
std::uint64_t blocking(Calls calls) {
  const std::uint64_t waits = calls.functions["cudaEventSynchronize"];
  CHECK(waits < kRequests);
  return calls.classes.blocking - waits;
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

TEST_CASE("a request of the last rung allocates nothing, creates nothing and never blocks",
          "[resnet][infer][traffic]") {
  const TemporaryDirectory directory;
  const bool uint8 = GENERATE(false, true);
  const Calls few = calls_of(directory, 8, 3, uint8);
  const auto check = [&](const Calls& many, std::uint64_t created) {
    INFO(differences(few, many));
    CHECK(many.classes.launching >= few.classes.launching + kRequests);
    CHECK(many.classes.allocating == few.classes.allocating);
    CHECK(many.classes.creating == few.classes.creating + created);
    CHECK(blocking(many) == blocking(few));
  };
  check(calls_of(directory, 8 + kRequests, 3, uint8), 0);
  // Every context has two pairs of events for each measured request, whoever takes it: they are
  // made before, and destroyed after.
  check(calls_of(directory, 8, 3 + kRequests, uint8), kContexts * kRequests * 2 * 2 * 2);
}

}  // namespace
