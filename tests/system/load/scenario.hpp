// SPDX-License-Identifier: Apache-2.0
#pragma once

// A scenario: one kind of load, at a size that the command line chooses. It prints its progress,
// and throws where something was lost, torn or has grown.

#include <cstdint>
#include <initializer_list>

namespace penstock::test {

struct Scenario {
  const char* name;
  const char* what;    // it does, in a line
  std::uint64_t size;  // of the long run
  void (*run)(std::uint64_t size);
};

/// `program NAME [SIZE]` runs one, and prints "NAME: nothing lost, nothing torn, nothing grown";
/// without a name, lists them with their sizes. Returns the exit status.
int run_scenario(int argc, char** argv, std::initializer_list<Scenario> scenarios);

}  // namespace penstock::test
