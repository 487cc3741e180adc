// SPDX-License-Identifier: Apache-2.0

// Device times on a machine of known speed, and which calls they make.

#include <penstock/emulation.hpp>
#include <penstock/prefetcher.hpp>

#include <chrono>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

namespace emulation = penstock::emulation;
using namespace std::chrono_literals;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::Stats;
using penstock::test::eventually;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::write_numbers;

TEST_CASE("a copy takes what the machine's bus takes", "[prefetcher][device_times][emulated]") {
  emulation::Options options = emulation::options();
  options.machine.host_to_device = static_cast<double>(numbers_layout(4).bytes()) / 4e-3;
  emulation::reset(options);
  {
    TestStream stream;
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 12, 4), write_numbers,
                                   {.workers = 1, .device_times = true});
    while (prefetcher.next(stream)) {
    }
    REQUIRE_CUDA(cudaDeviceSynchronize());
    const Stats stats = prefetcher.stats();
    CHECK(stats.copy.busy >= 12 * 4ms - 1us);
    CHECK(stats.device->copies == 12);
    // The consumer does nothing but wait for copies.
    CHECK(stats.device->awaiting_copy + stats.device->awaiting_batch > 11 * 4ms / 2);
  }
}

TEST_CASE("device times after construction: no creation, no allocation, nothing that blocks",
          "[prefetcher][device_times][emulated]") {
  const int workers = GENERATE(0, 2);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 300, 4), write_numbers,
                                 {.workers = workers, .device_times = true});
  for (int i = 0; i < 20; ++i) prefetcher.next(stream).release();
  emulation::reset_counters();
  while (prefetcher.next(stream)) static_cast<void>(prefetcher.stats());
  const emulation::CallClasses classes = emulation::call_classes();
  CHECK(classes.allocating == 0);
  CHECK(classes.creating == 0);
  CHECK(classes.blocking == 0);
  CHECK(emulation::calls("cudaEventElapsedTime") > 0);
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

TEST_CASE("without device_times fewer events are recorded, and still some times read",
          "[prefetcher][device_times][emulated]") {
  const auto records_of = [](bool device_times) {
    TestStream stream;
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 40, 4), write_numbers,
                                   {.workers = 1, .device_times = device_times});
    while (prefetcher.next(stream)) static_cast<void>(prefetcher.stats());
    REQUIRE_CUDA(cudaDeviceSynchronize());
    const std::uint64_t records = emulation::calls("cudaEventRecord");
    CHECK(emulation::calls("cudaEventElapsedTime") > 0);
    emulation::reset_counters();
    return records;
  };
  emulation::reset_counters();
  const std::uint64_t without = records_of(false);
  const std::uint64_t with = records_of(true);
  // Without, a batch has 2 for sure: the end of its copy, the end of its lease. Others are of
  // samples. With them there are 4 more for each; and whatever sets the clock.
  CHECK(without >= 2 * 40);
  CHECK(with >= 6 * 40);
  CHECK(with > without);
}

TEST_CASE("an error that the user has yet to see is not covered up by a look or a time",
          "[prefetcher][device_times][emulated]") {
  const bool device_times = GENERATE(false, true);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 40, 4), write_numbers,
                                 {.workers = 2, .device_times = device_times});
  prefetcher.next(stream).release();
  CHECK(cudaSetDevice(-1) != cudaSuccess);
  for (int i = 0; i < 10; ++i) {
    prefetcher.next(stream).release();
    static_cast<void>(prefetcher.stats());
  }
  CHECK(cudaGetLastError() != cudaSuccess);
  REQUIRE_CUDA(cudaDeviceSynchronize());
}
