// SPDX-License-Identifier: Apache-2.0

#include "scenario.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace penstock::test {
namespace {

int run(const Scenario& scenario, std::uint64_t size) {
  try {
    scenario.run(size);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: FAILED: %s\n", scenario.name, error.what());
    return 1;
  }
  std::printf("%s: nothing lost, nothing torn, nothing grown: %llu %s\n", scenario.name,
              static_cast<unsigned long long>(size), scenario.what);
  return 0;
}

}  // namespace

int run_scenario(int argc, char** argv, std::initializer_list<Scenario> scenarios) {
  for (const Scenario& scenario : scenarios)
    if (argc > 1 && std::string_view(argv[1]) == scenario.name)
      return run(scenario, argc > 2 ? std::stoull(argv[2]) : scenario.size);
  for (const Scenario& scenario : scenarios)
    std::printf("%-12s %10llu %s\n", scenario.name, static_cast<unsigned long long>(scenario.size),
                scenario.what);
  return argc > 1 ? 2 : 0;
}

}  // namespace penstock::test
