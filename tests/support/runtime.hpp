// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a test program does about the runtime it is linked with. Defined twice: emulated_runtime.cpp
// (a fresh machine for each test case, and nothing may leak) and real_runtime.cpp (is there a
// GPU?).

namespace penstock::test {

/// 0: go on with the tests. Anything else ends the program with that exit status.
int before_tests();

/// Exit status of a program whose tests all passed.
int after_tests();

}  // namespace penstock::test
