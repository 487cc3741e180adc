// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the fuzz targets share.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

/// Looks at one input; ends the process where the library is wrong about it. Called by libFuzzer,
/// or by replay.cpp.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace penstock::test {

/// Never compiled out.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

}  // namespace penstock::test
