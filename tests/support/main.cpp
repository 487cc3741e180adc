// SPDX-License-Identifier: Apache-2.0

// The main function of every test program, over the emulated runtime and over the real one.
// after_tests() comes from emulated_runtime.cpp or real_runtime.cpp, whichever is linked.

#define CATCH_CONFIG_RUNNER
#include "catch.hpp"
#include "runtime.hpp"

int main(int argc, char** argv) {
  if (const int status = penstock::test::before_tests(); status != 0) return status;
  const int failed = Catch::Session().run(argc, argv);
  return failed != 0 ? failed : penstock::test::after_tests();
}
