// SPDX-License-Identifier: Apache-2.0

// The main function of every test program, over the emulated runtime and over the real one.
// after_tests() comes from emulated_runtime.cpp or real_runtime.cpp, whichever is linked.
//
// With PENSTOCK_TEST_PART=2/3 in its environment the program runs every third test case, from the
// second on: tests/CMakeLists.txt divides a long program among processes that run at the same time.

#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define CATCH_CONFIG_RUNNER
#include "catch.hpp"
#include "runtime.hpp"

namespace {

struct Part {
  unsigned number = 1, of = 1;
};

/// Part 1 of 1 where the environment has none. False if it has none such.
bool read_part(Part& part) {
  const char* const text = std::getenv("PENSTOCK_TEST_PART");
  if (text == nullptr) return true;
  int length = 0;
  return std::sscanf(text, "%u/%u%n", &part.number, &part.of, &length) == 2 &&
         static_cast<std::size_t>(length) == std::strlen(text) && part.number >= 1 &&
         part.number <= part.of;
}

#if PENSTOCK_CATCH2_VERSION == 3
/// Catch2 fails a part without test cases itself.
bool choose(const Part& part, Catch::Session& session) {
  session.configData().shardCount = part.of;
  session.configData().shardIndex = part.number - 1;
  return true;
}
#else
/// Catch2 2 divides nothing itself: it gets the names of the part's test cases. False if there are
/// none.
bool choose(const Part& part, Catch::Session& session) {
  const Catch::Config& config = session.config();
  unsigned position = 0;
  std::string names;
  for (const Catch::TestCase& test :
       Catch::filterTests(Catch::getAllTestCasesSorted(config), config.testSpec(), config)) {
    if (position++ % part.of != part.number - 1) continue;
    names += names.empty() ? "\"" : ",\"";
    for (const char letter : test.name) {
      if (std::strchr("\\\",[", letter) != nullptr) names += '\\';
      names += letter;
    }
    names += '"';
  }
  Catch::ConfigData data = session.configData();
  data.testsOrTags = {names};
  session.useConfigData(data);
  return !names.empty();
}
#endif

}  // namespace

int main(int argc, char** argv) {
  Part part;
  if (!read_part(part)) {
    std::fputs("PENSTOCK_TEST_PART is the number of a part and how many there are, such as 2/3\n",
               stderr);
    return 2;
  }
  ::unsetenv("PENSTOCK_TEST_PART");  // A process that a test starts runs what that names.
  if (const int status = penstock::test::before_tests(); status != 0) return status;
  Catch::Session session;
  if (const int status = session.applyCommandLine(argc, argv); status != 0) return status;
  if (part.of > 1 && !choose(part, session)) {
    std::fputs("PENSTOCK_TEST_PART: this part has no test case\n", stderr);
    return 2;
  }
  const int failed = session.run();
  return failed != 0 ? failed : penstock::test::after_tests();
}
