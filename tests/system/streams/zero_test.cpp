// SPDX-License-Identifier: Apache-2.0

// The stream 0: the legacy default stream or the thread's own, as the source is compiled that
// passes it, in one program that has both.

#include <penstock/emulation.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "zero_calls.hpp"

namespace penstock::test {
namespace {

/// How many operations of the default streams there were: the legacy one, and this thread's own.
struct Operations {
  std::ptrdiff_t legacy = 0, own = 0;
};

std::uint64_t number_of_own_stream() {
  unsigned long long id = 0;
  REQUIRE_CUDA(cudaStreamGetId(cudaStreamPerThread, &id));
  return id - 1;  // of device 0
}

Operations operations_so_far() {
  const std::uint64_t own = number_of_own_stream();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  Operations operations;
  for (const emulation::Operation& operation : emulation::timeline()) {
    operations.legacy += operation.stream == 0;
    operations.own += operation.stream == own;
  }
  return operations;
}

template <class Action>
Operations operations_of(Action action) {
  emulation::record_timeline(true);
  const Operations before = operations_so_far();
  action();
  const Operations after = operations_so_far();
  return {after.legacy - before.legacy, after.own - before.own};
}

}  // namespace

TEST_CASE("stream 0 is what it is in the source that passes it", "[streams][zero]") {
  const bool own = GENERATE(false, true);
  const ZeroCalls& zero = own ? zero_in_per_thread_source : zero_in_legacy_source;
  INFO("compiled for " << (own ? "per-thread default streams" : "the legacy default stream"));
  const auto check = [&](const std::string& call, const Operations& operations) {
    INFO(call);
    CHECK((own ? operations.own : operations.legacy) > 0);
    CHECK((own ? operations.legacy : operations.own) == 0);
  };

  const TestStream other;
  const DeviceMemory<int> memory(1000);
  auto* const device = reinterpret_cast<std::byte*>(memory.data());
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(400, 4), write_numbers,
                                 {.workers = 1, .device_depth = 2});
  Lease<Numbers> lease;
  check("Prefetcher::next", operations_of([&] { lease = zero.next(prefetcher); }));
  check("Lease::release", operations_of([&] { lease.release(); }));
  lease = prefetcher.next(other);
  check("Lease::also_used_on", operations_of([&] {
          zero.also_used_on(lease);  // It waits for nothing where the copy is known to be done.
          lease.release();
        }));

  DeviceArena arena(1, 1000);
  arena.acquire(other).release_after(other);  // so that there is something to wait for
  DeviceSlot slot;
  check("DeviceArena::acquire", operations_of([&] { slot = zero.acquire(arena); }));
  check("~DeviceSlot", operations_of([&] { slot = DeviceSlot(); }));
  slot = arena.acquire(other);
  check("DeviceSlot::release_after", operations_of([&] { zero.release_slot(slot); }));
  slot = arena.acquire(other);
  check("DeviceSlot::release_after several",
        operations_of([&] { zero.release_slot_after_several(slot); }));

  PinnedPool pool;
  PinnedBlock block = pool.acquire(1000);
  check("PinnedBlock::release_after", operations_of([&] { zero.release_block(block); }));
  block = pool.acquire(1000);
  check("PinnedBlock::copy_to", operations_of([&] { zero.copy_block(block, device); }));

  BatchProducer<Numbers> producer(numbers_layout(4), sequential(4, 4), write_numbers, pool,
                                  {.workers = 1});
  auto batch = producer.next();
  REQUIRE(batch);
  check("HostBatch::copy_to", operations_of([&] { zero.copy_batch(*batch, device); }));

  Readback<int> readback(1);
  check("Readback::push", operations_of([&] { zero.push(readback, memory.data()); }));
  readback.drain();

  check("for_each", operations_of([&] { zero.for_each(memory.data()); }));
  lease = prefetcher.next(other);
  StepGraph graphs;
  if (own) {  // The legacy default stream cannot be captured.
    check("StepGraph::launch", operations_of([&] { zero.launch(graphs, lease, memory.data()); }));
    check("StepGraph::launch_numbered",
          operations_of([&] { zero.launch_numbered(graphs, memory.data()); }));
  }

  Event event;
  check("Event::record", operations_of([&] { zero.record(event); }));
  event.record(other);
  check("Event::make_wait", operations_of([&] { zero.make_wait(event); }));
}

}  // namespace penstock::test
