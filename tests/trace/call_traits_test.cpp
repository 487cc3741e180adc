// SPDX-License-Identifier: Apache-2.0

// What calls cost, by name: the same as the emulated runtime says of its own.

#include <emulation/functions.hpp>
#include <penstock/trace/call_traits.hpp>
#include <string>

#include "support/catch.hpp"

using namespace penstock::trace;
namespace emulation = penstock::emulation::detail;

TEST_CASE("Traits agree with the emulated runtime's, with any suffix") {
  for (const emulation::FunctionFacts& facts : emulation::traits::kFunctions) {
    for (const char* suffix : {"", "_v3020", "_ptsz", "_ptsz_v7000"}) {
      const std::string name = std::string(facts.name) + suffix;
      INFO(name);
      const CallTraits traits = traits_of(name);
      CHECK(traits.allocating == ((facts.traits & emulation::traits::allocating) != 0));
      CHECK(traits.creating == ((facts.traits & emulation::traits::creating) != 0));
      CHECK(traits.blocking == ((facts.traits & emulation::traits::blocking) != 0));
      CHECK(traits.launching == ((facts.traits & emulation::traits::launching) != 0));
      CHECK(plain_name(name) == facts.name);
    }
  }
}

TEST_CASE("What only waits is synchronising") {
  for (const char* name :
       {"cudaStreamSynchronize_v3020", "cudaEventSynchronize_v3020", "cudaDeviceSynchronize_v3020",
        "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"}) {
    CHECK(traits_of(name).synchronising);
    CHECK(traits_of(name).blocking);
  }
  for (const char* name : {"cudaMemcpy", "cudaFree", "cudaStreamQuery", "cudaDeviceReset"})
    CHECK_FALSE(traits_of(name).synchronising);
}

TEST_CASE("Launches that the emulated runtime has not") {
  for (const char* name :
       {"cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "cudaLaunchCooperativeKernel_v9000",
        "cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cudaMemcpy3DAsync_v3020",
        "cudaMemcpyToSymbolAsync_v3020", "cuMemcpyHtoDAsync_v2", "cuMemsetD8Async"}) {
    INFO(name);
    CHECK(traits_of(name).launching);
    CHECK_FALSE(traits_of(name).blocking);
    CHECK_FALSE(traits_of(name).allocating);
  }
}

TEST_CASE("The driver's calls") {
  CHECK(traits_of("cuMemAlloc_v2").allocating);
  CHECK_FALSE(traits_of("cuMemAlloc_v2").blocking);
  CHECK(traits_of("cuMemFree_v2").blocking);
  CHECK(traits_of("cuMemAllocAsync_ptsz").launching);
  CHECK_FALSE(traits_of("cuMemFreeAsync").blocking);
  CHECK(traits_of("cuMemHostUnregister").blocking);
  CHECK(traits_of("cuMemCreate").allocating);
  CHECK_FALSE(traits_of("cuMemCreate").creating);
  CHECK(traits_of("cuMemcpyDtoH_v2").blocking);
  CHECK(traits_of("cuStreamCreateWithPriority").creating);
}

TEST_CASE("Names that are no call's") {
  for (const char* name :
       {"", "cuda", "cu", "malloc", "_v1", "Malloc", "forward", "cudaGetDevice"}) {
    const CallTraits traits = traits_of(name);
    CHECK_FALSE((traits.allocating || traits.creating || traits.blocking || traits.launching));
  }
  CHECK(plain_name("my_kernel_v") == "my_kernel_v");
  CHECK(plain_name("my_kernel_v2x") == "my_kernel_v2x");
  CHECK(plain_name("").empty());
}
