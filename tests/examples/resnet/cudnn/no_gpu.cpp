// SPDX-License-Identifier: Apache-2.0

// For tests that have a CUDA runtime and want no GPU of it.

#include "support/runtime.hpp"

namespace penstock::test {

int before_tests() {
  return 0;
}

int after_tests() {
  return 0;
}

}  // namespace penstock::test
