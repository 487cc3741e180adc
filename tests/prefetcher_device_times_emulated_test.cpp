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

/// Takes no time, however the tests are compiled: what is measured are the copies.
static void write_little(const penstock::Ticket& ticket, Numbers& batch) {
  batch.sample(0) = ticket.samples[0];
}

TEST_CASE("copies of pageable memory block, which is a wait of whoever issues them",
          "[prefetcher][device_times][emulated]") {
  const bool device_times = GENERATE(false, true);
  constexpr std::int64_t kBatch = 4096;  // 64 KiB would be staged at once
  constexpr int kBatches = 20;
  emulation::Options options = emulation::options();
  options.machine.host_to_device = static_cast<double>(numbers_layout(kBatch).bytes()) / 2e-3;
  options.machine.pageable_share = 0.5;  // 4 ms
  emulation::reset(options);
  {
    TestStream stream;
    Prefetcher<Numbers> prefetcher(numbers_layout(kBatch),
                                   Sampler{{.samples = kBatches * kBatch, .batch_size = kBatch}},
                                   write_little,
                                   {.workers = 1,
                                    .host_memory = penstock::HostMemory::pageable,
                                    .device_times = device_times});
    const auto begin = std::chrono::steady_clock::now();
    while (prefetcher.next(stream)) {
    }
    REQUIRE_CUDA(cudaDeviceSynchronize());
    const auto all = std::chrono::steady_clock::now() - begin;
    const Stats stats = prefetcher.stats();
    CHECK(stats.copy.busy >= kBatches * 4ms - 1ms);
    CHECK(stats.copy.busy + stats.copy.waiting_for_input + stats.copy.waiting_for_room <=
          all + stats.first_batch);
    // The loop does nothing: what its leases' ends take are copies.
    CHECK(stats.consumer.waiting_for_input > 4 * stats.consumer.busy);
    CHECK(stats.bottleneck() == penstock::Bottleneck::copy);
    CHECK(stats.verdict().kind == penstock::VerdictKind::pinned_memory);
  }
}

TEST_CASE("the end of a lease that issues a blocking copy is a wait for input",
          "[prefetcher][device_times][emulated]") {
  constexpr std::int64_t kBatch = 4096;
  constexpr int kLeases = 5;
  emulation::Options options = emulation::options();
  options.machine.host_to_device = static_cast<double>(numbers_layout(kBatch).bytes()) / 2e-3;
  options.machine.pageable_share = 0.5;  // 4 ms
  emulation::reset(options);
  {
    TestStream stream;
    Prefetcher<Numbers> prefetcher(numbers_layout(kBatch),
                                   Sampler{{.samples = 10 * kBatch, .batch_size = kBatch}},
                                   write_little,
                                   {.workers = 1,
                                    .host_depth = 3,
                                    .device_depth = 1,
                                    .host_memory = penstock::HostMemory::pageable});
    for (int i = 0; i < kLeases; ++i) {
      const auto batch = prefetcher.next(stream);
      // The next batch is ready, and the worker has gone on: this thread will copy it.
      const std::uint64_t made = static_cast<std::uint64_t>(i) + 3;
      REQUIRE(eventually([&] { return prefetcher.stats().source.batches >= made; }));
    }
    CHECK(prefetcher.stats().consumer.waiting_for_input >= (kLeases - 1) * 4ms - 1ms);
    REQUIRE_CUDA(cudaDeviceSynchronize());
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

TEST_CASE("without device_times no time is read, and no event more is recorded",
          "[prefetcher][device_times][emulated]") {
  const auto records_of = [](bool device_times) {
    TestStream stream;
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 40, 4), write_numbers,
                                   {.workers = 1, .device_times = device_times});
    while (prefetcher.next(stream)) static_cast<void>(prefetcher.stats());
    REQUIRE_CUDA(cudaDeviceSynchronize());
    const std::uint64_t records = emulation::calls("cudaEventRecord");
    emulation::reset_counters();
    return records;
  };
  emulation::reset_counters();
  const std::uint64_t without = records_of(false);
  CHECK(emulation::calls("cudaEventElapsedTime") == 0);
  const std::uint64_t with = records_of(true);
  CHECK(with >= without + 4 * 40);
  CHECK(with <= without + 4 * 40 + 4);  // The end, too, is asked for.
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
