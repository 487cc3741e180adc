// SPDX-License-Identifier: Apache-2.0

// What a tool for CUDA's driver injects: like nsys's, it takes a process without a driver down.

#include <cstdlib>

extern "C" int InitializeInjection() {
  std::abort();
}
