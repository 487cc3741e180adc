// SPDX-License-Identifier: Apache-2.0

#include <penstock/emulation.hpp>
#include <penstock/prefetcher.hpp>

#include <cstdint>
#include <string>

#include "support/catch.hpp"
#include "support/made_machine.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

TEST_CASE("where CUDA does not tell the devices, nothing is placed, and no error is left",
          "[placement][emulated]") {
  const SplitMachine machine;
  if (!machine.is_split()) return;
  for (const char* call : {"cudaGetDeviceCount", "cudaDeviceGetPCIBusId"}) {
    emulation::fail_call(call, cudaErrorNotSupported, 1);
    const Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4), write_numbers,
                                         {.workers = 1, .placement = machine.automatic()});
    CHECK(cudaGetLastError() == cudaSuccess);
    const Stats stats = prefetcher.stats();
    REQUIRE(stats.placement != nullptr);
    CHECK_THAT(*stats.placement, Mentions("none: " + std::string(call)));
  }
}

TEST_CASE("snapshots share the report of the placement", "[placement][emulated]") {
  const SplitMachine machine;
  if (!machine.is_split()) return;
  const Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4), write_numbers,
                                       {.workers = 1, .placement = machine.automatic()});
  const Stats stats = prefetcher.stats();
  REQUIRE(stats.placement != nullptr);
  CHECK(prefetcher.stats().placement == stats.placement);
}

TEST_CASE("on a machine with one NUMA node a pipeline asks CUDA for nothing more",
          "[placement][emulated]") {
  MadeMachine machine;
  machine.node(0, detail::to_text(own_cpus()));
  const std::uint64_t before = emulation::calls("cudaDeviceGetPCIBusId");
  const Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(8, 4), write_numbers,
                                       {.workers = 1, .placement = machine.automatic()});
  CHECK(emulation::calls("cudaDeviceGetPCIBusId") == before);
  CHECK(prefetcher.stats().placement == nullptr);
}

}  // namespace
}  // namespace penstock
