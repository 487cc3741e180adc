// SPDX-License-Identifier: Apache-2.0

#include "support/runtime.hpp"

namespace penstock::test {

int before_tests() {
  return 0;
}

int after_tests() {
  return 0;
}

}  // namespace penstock::test
