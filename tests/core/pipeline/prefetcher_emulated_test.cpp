// SPDX-License-Identifier: Apache-2.0

// What only the emulated runtime can tell of a prefetcher: which calls it makes, what it leaves
// behind, what it does when a call fails, and which stage it blames on a machine of known speed.

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/sanitized.hpp"
#include "support/thrown.hpp"

#if !PENSTOCK_TEST_SANITIZED
#include "support/no_more_threads.hpp"
#endif

namespace emulation = penstock::emulation;
using namespace std::chrono_literals;
using penstock::Bottleneck;
using penstock::CudaError;
using penstock::Layout;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Sampler;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::sequential;
using penstock::test::serial_sample_numbers;
using penstock::test::TestStream;
using penstock::test::Waiter;
using penstock::test::write_numbers;

namespace {

/// The runtime starts afresh, as `change` of the schedule and machine of this test run says.
template <class Change>
void reset(Change change) {
  emulation::Options options = emulation::options();
  change(options);
  emulation::reset(options);
}

}  // namespace

TEST_CASE("a full batch is one copy, a short one is a copy for each field",
          "[prefetcher][emulated]") {
  emulation::record_timeline(true);
  {
    TestStream stream;
    Prefetcher<Numbers> prefetcher(numbers_layout(8), sequential(19, 8), write_numbers,
                                   {.workers = 1});
    while (prefetcher.next(stream)) {
    }
    REQUIRE_CUDA(cudaDeviceSynchronize());
  }
  std::vector<std::size_t> bytes;
  for (const emulation::Operation& operation : emulation::timeline())
    if (operation.kind == emulation::OperationKind::copy) bytes.push_back(operation.bytes);
  const std::size_t full = numbers_layout(8).bytes();
  CHECK(bytes == std::vector<std::size_t>{full, full, 3 * sizeof(std::uint64_t),
                                          3 * penstock::test::kPayload * sizeof(std::uint32_t)});
}

namespace {

/// The emulated runtime allocates when more work is queued than ever before: let that be now.
void queue_more_than_any_pipeline() {
  TestStream held, waiting;
  const penstock::Event event;
  Gate gate;
  gate.hold(held);
  REQUIRE_CUDA(cudaEventRecord(event.get(), held));
  for (int i = 0; i < 1000; ++i) event.make_wait(waiting);
  gate.open();
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

}  // namespace

TEST_CASE("after construction: no allocation, no creation, no call that blocks the host",
          "[prefetcher][emulated]") {
  const int workers = GENERATE(0, 1, 3);
  TestStream stream, second;
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sequential(800, 8), write_numbers,
                                 {.workers = workers, .host_depth = 4, .epochs = 3});
  // Warm-up: the first release of each slot on a second stream makes an event for it.
  for (int i = 0; i < 150; ++i) {
    auto batch = prefetcher.next(stream);
    batch.also_used_on(second);
  }
  queue_more_than_any_pipeline();
  emulation::reset_counters();
  const std::uint64_t allocations = penstock::test::allocations_of_this_thread();
  while (auto batch = prefetcher.next(stream)) batch.also_used_on(second);
  // Under the other schedules the emulated runtime itself may allocate at any time.
  if (emulation::options().schedule == emulation::Schedule::eager)
    CHECK(penstock::test::allocations_of_this_thread() == allocations);
  const emulation::CallClasses classes = emulation::call_classes();
  CHECK(classes.allocating == 0);
  CHECK(classes.creating == 0);
  CHECK(classes.blocking == 0);
  CHECK(emulation::calls("cudaMemcpyAsync") >= 150 - 4);
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

#if !PENSTOCK_TEST_SANITIZED
TEST_CASE(
    "restore without a thread to be had: it says so, next() does not wait, and it can be "
    "tried again",
    "[prefetcher][emulated]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sequential(160, 8), write_numbers,
                                 {.workers = 2});
  for (int i = 0; i < 3; ++i) prefetcher.next(stream);
  const penstock::State state = prefetcher.state();
  {
    const penstock::test::NoMoreThreads no_more_threads;
    CHECK_THROWS_AS(prefetcher.restore(state), std::system_error);
    CHECK_FALSE(prefetcher.next(stream));
    CHECK(prefetcher.state() == state);
  }
  prefetcher.restore(state);
  CHECK(prefetcher.next(stream).ticket().batch == 3);
}

TEST_CASE("some threads start and the next one does not: those that run are ended",
          "[prefetcher][emulated]") {
  penstock::PinnedPool pool;
  const auto make = [&] {
    const penstock::test::NoMoreThreads more_than_two(2);
    penstock::BatchProducer<Numbers>(numbers_layout(8), sequential(1600, 8), write_numbers, pool,
                                     {.workers = 4, .depth = 2});
  };
  CHECK_THROWS_AS(make(), std::system_error);
}
#endif

TEST_CASE("after a prefetcher, its leases alive, nothing is copied and no source lives on a worker",
          "[prefetcher][emulated]") {
  struct Source {
    std::shared_ptr<int> copies;  // its use count: how many copies of the source there are
    void operator()(const Ticket& ticket, Numbers& batch) const { write_numbers(ticket, batch); }
  };
  const auto copies = std::make_shared<int>(0);
  TestStream stream;
  penstock::Lease<Numbers> lease;
  {
    Prefetcher<Numbers> prefetcher(numbers_layout(8), sequential(1600, 8), Source{copies},
                                   {.workers = 2, .host_depth = 6, .device_depth = 2});
    lease = prefetcher.next(stream);
    // The test's own, the producer's, and one for each worker that has had a batch to fill.
    REQUIRE(eventually([&] { return copies.use_count() >= 3; }));
    REQUIRE(eventually([&] { return prefetcher.stats().source.batches >= 4; }));
  }
  CHECK(copies.use_count() == 2);
  const std::uint64_t copied = emulation::calls("cudaMemcpyAsync");
  lease.release();
  CHECK(emulation::calls("cudaMemcpyAsync") == copied);
}

TEST_CASE("memory does not grow with epochs or errors", "[prefetcher][emulated]") {
  TestStream stream;
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch % 7 == 3) throw std::runtime_error("bad");
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sequential(160, 8), source,
                                 {.workers = 2, .host_depth = 4, .epochs = 30});
  const emulation::Live before = emulation::live();
  for (int i = 0; i < 600; ++i) {
    try {
      prefetcher.next(stream);
    } catch (const penstock::SourceError&) {
    }
    if (i == 100) CHECK(emulation::live().device_bytes == before.device_bytes);
  }
  const emulation::Live after = emulation::live();
  CHECK(after.pinned_bytes == before.pinned_bytes);
  CHECK(after.device_bytes == before.device_bytes);
  CHECK(after.events <= before.events + 4);  // one for each pinned block, at its first release
}

TEST_CASE("pinned memory that the system refuses is an error with numbers",
          "[prefetcher][emulated]") {
  reset([](emulation::Options& options) { options.machine.pinned_bytes = 100'000; });
  try {
    Prefetcher<Numbers> prefetcher(numbers_layout(64), sequential(640, 64), write_numbers,
                                   {.workers = 1, .host_depth = 100});
    FAIL("there was not that much page-locked memory");
  } catch (const penstock::PoolExhausted& error) {
    CHECK(error.asked() == numbers_layout(64).bytes());
    CHECK(error.in_use() > 0);
    CHECK(std::string(error.what()).find("host_depth") != std::string::npos);
  }
}

TEST_CASE("device memory that is not there is an error with numbers, and what to lower",
          "[prefetcher][emulated]") {
  using penstock::test::Mentions;
  reset([](emulation::Options& options) { options.machine.device_bytes = 1 << 20; });
  const auto layout = numbers_layout(1 << 16);
  const auto message = [&](std::size_t depth) {
    return penstock::test::thrown<penstock::CudaError>([&] {
      Prefetcher<Numbers>(layout, sequential(1 << 17, 1 << 16), write_numbers,
                          {.workers = 1, .host_depth = 2, .device_depth = depth});
    });
  };
  CHECK_THAT(message(3), Mentions("3 slots (of device_depth) of " + std::to_string(layout.bytes()) +
                                  " bytes, for batches of 65536 samples, with 1048576 of 1048576 "
                                  "bytes free: lower device_depth or the batch size") &&
                             Mentions("cudaMalloc("));
}

TEST_CASE("stats tell how much device memory the batches may take", "[prefetcher][emulated]") {
  reset([](emulation::Options& options) { options.machine.device_bytes = 1 << 20; });
  const auto limit = [](std::size_t others) {
    const penstock::DeviceArena arena(1, others);
    return Prefetcher<Numbers>(numbers_layout(64), sequential(640, 64), write_numbers,
                               {.workers = 1})
        .stats()
        .setup.device_limit;
  };
  CHECK(limit(512) < 1 << 20);
  CHECK(limit(512) > (1 << 20) - (1 << 13));
  CHECK(limit(512) - limit(512 + (1 << 19)) == 1 << 19);
  emulation::fail_call("cudaMemGetInfo", cudaErrorUnknown);
  CHECK(limit(512) == 0);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("an error needs no device slot: the batches behind it are copied",
          "[prefetcher][emulated]") {
  TestStream stream;
  std::atomic<int> called{0};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(12, 4),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   ++called;
                                   if (ticket.batch == 0) throw std::runtime_error("bad");
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 1, .host_depth = 3, .device_depth = 2});
  CHECK(eventually([&] { return called == 3 && prefetcher.stats().source.batches == 2; }));
  CHECK(eventually([&] { return prefetcher.stats().copy.batches == 2; }));
  CHECK_THROWS_AS(prefetcher.next(stream), penstock::SourceError);
  CHECK(prefetcher.next(stream).ticket().batch == 1);
}

TEST_CASE("an on_device source has a stream for each worker, beside that of the copies",
          "[prefetcher][emulated][on_device]") {
  const auto before = emulation::live().streams;
  const auto write_nothing = [](const Ticket&, Numbers&, cudaStream_t) {};
  const Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(12, 4),
                                       penstock::on_device(write_nothing), {.workers = 3});
  CHECK(emulation::live().streams == before + 4);
}

TEST_CASE("two devices, each with a pipeline", "[prefetcher][emulated][devices]") {
  reset([](emulation::Options& options) { options.machine.devices = 2; });
  const Sampler sampler = sequential(60, 4);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int device = 0; device < 2; ++device)
    threads.emplace_back([&, device] {
      cudaSetDevice(device);
      const penstock::Stream stream;
      Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers, {.workers = 2});
      std::uint64_t batches = 0;
      while (auto batch = prefetcher.next(stream.get())) {
        cudaPointerAttributes attributes{};
        cudaPointerGetAttributes(&attributes, batch->sample.data_handle());
        batches += attributes.device == device;
      }
      right += batches == 15;
      cudaDeviceSynchronize();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 2);
}

namespace {

/// The verdict on 40 batches through stages of known, sleeping length.
Bottleneck verdict_on(std::chrono::milliseconds source_time, std::chrono::milliseconds copy_time,
                      std::chrono::milliseconds compute_time, bool synchronous) {
  const Layout<Numbers> layout = numbers_layout(4096);
  reset([&](emulation::Options& options) {
    options.schedule =
        emulation::Schedule::eager;  // a schedule of delays has a bottleneck of its own
    options.machine.host_to_device =
        static_cast<double>(layout.bytes()) / std::chrono::duration<double>(copy_time).count();
  });
  const penstock::Stream stream;
  const auto source = [=](const Ticket& ticket, Numbers& batch) {
    batch.seed = ticket.seed;
    std::this_thread::sleep_for(source_time);
  };
  Prefetcher<Numbers> prefetcher(layout, sequential(40 * 4096, 4096), source,
                                 {.workers = 1, .host_depth = 4});
  while (auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), 1,
                       [=](std::int64_t) { std::this_thread::sleep_for(compute_time); });
    if (synchronous) stream.synchronize();
  }
  stream.synchronize();
  return prefetcher.stats().bottleneck();
}

}  // namespace

TEST_CASE("the stage that is slowest is the bottleneck", "[prefetcher][emulated][verdict]") {
  const auto [source, copy, compute, verdict] =
      GENERATE(table<int, int, int, Bottleneck>({{8, 1, 1, Bottleneck::source},
                                                 {1, 8, 1, Bottleneck::copy},
                                                 {1, 1, 8, Bottleneck::consumer}}));
  const bool synchronous = GENERATE(false, true);
  // Stages sleep, so a machine that is busy elsewhere can spoil a run: one of three must be
  // undisturbed.
  bool right = false;
  for (int attempt = 0; attempt < 3 && !right; ++attempt)
    right = verdict_on(std::chrono::milliseconds(source), std::chrono::milliseconds(copy),
                       std::chrono::milliseconds(compute), synchronous) == verdict;
  CHECK(right);
}

TEST_CASE("a batch that one thread fails to take is there for another that waits",
          "[prefetcher][emulated][threads]") {
  std::atomic<bool> go{false};
  const auto source = [&](const Ticket& ticket, Numbers& batch) {
    while (!go) std::this_thread::yield();
    write_numbers(ticket, batch);
  };
  // There is one slot, so no later batch wakes anybody, and enough memory, so no worker asks
  // whether the copy is done.
  Prefetcher<Numbers> prefetcher(
      numbers_layout(4), sequential(8, 4), source,
      {.workers = 1, .host_depth = 3, .device_depth = 1, .stall_timeout = 0ms});
  std::array<Waiter, 2> waiters;
  std::atomic<int> failed{0}, taken{0};
  const auto take = [&](Waiter& waiter) {
    const penstock::Stream stream;
    waiter.enter();
    try {
      taken += prefetcher.next(stream.get()).ticket().batch == 0 ? 1 : 0;
    } catch (const CudaError&) {
      ++failed;
    }
  };
  std::thread first([&] { take(waiters[0]); }), second([&] { take(waiters[1]); });
  for (const Waiter& waiter : waiters) waiter.wait_until_asleep();
  emulation::fail_call("cudaStreamWaitEvent", cudaErrorInvalidResourceHandle, 1);
  go = true;
  first.join();
  second.join();
  CHECK(failed == 1);
  CHECK(taken == 1);
  emulation::clear_failures();
}
