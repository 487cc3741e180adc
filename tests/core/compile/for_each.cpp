// SPDX-License-Identifier: Apache-2.0

// for_each, not compiled by nvcc, in a program over the real CUDA runtime: as it is, it does not
// link. Case 0 pretends to be the emulated runtime, and links.

#include <cstdint>
#include <penstock/launch.hpp>

#ifndef PENSTOCK_TEST_CASE
#define PENSTOCK_TEST_CASE 0
#endif

#if PENSTOCK_TEST_CASE == 0
void penstock::detail::for_each_on_the_real_cuda_runtime_has_to_be_compiled_by_nvcc() noexcept {}
#endif

int main() {
  penstock::for_each(nullptr, 1, [](std::int64_t) {});
}
