// SPDX-License-Identifier: Apache-2.0

// CopyWatch, DeviceClock: one thread records, any thread reads.

#include <penstock/cuda.hpp>
#include <penstock/detail/observe/copy_watch.hpp>
#include <penstock/detail/observe/device_clock.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using penstock::Stream;
using penstock::detail::CopyWatch;
using penstock::detail::DeviceClock;
using penstock::test::eventually;

namespace {

constexpr std::uint64_t kWatched = 100;

/// Calls `read` on another thread as long as `record` runs. Nothing here orders the two:
/// ThreadSanitizer sees what the watch orders.
template <class Record, class Read>
void record_while_reading(Record record, Read read) {
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over.load(std::memory_order_relaxed)) read();
  });
  for (std::uint64_t i = 0; i < kWatched; ++i) record();
  over.store(true, std::memory_order_relaxed);
  reader.join();
}

}  // namespace

TEST_CASE("copies are timed by whoever looks, one thread at a time", "[copy_watch]") {
  const bool exact = GENERATE(false, true), transforms = GENERATE(false, true);
  const Stream stream;
  CopyWatch watch(4, exact, transforms);
  const auto copy = [&] {
    watch.lack_slot();
    watch.begin(stream.get());
    watch.arrive(stream.get());
    watch.end(stream.get());
    stream.synchronize();
    watch.sample();
  };
  record_while_reading(copy, [&] { watch.collect(); });
  watch.collect();
  CHECK(watch.issued() == kWatched);
  CHECK(watch.timed() <= kWatched);
  // What a stopped reader holds up is not timed. Without one, copies are.
  CHECK(eventually([&] {
    copy();
    return watch.timed() > 0;
  }));
}

TEST_CASE("the time of a transform is not that of its copy", "[copy_watch]") {
  const Stream stream;
  CopyWatch watch(4, true, true);
  watch.begin(stream.get());
  watch.arrive(stream.get());
  REQUIRE_CUDA(cudaLaunchHostFunc(
      stream.get(), [](void*) { std::this_thread::sleep_for(5ms); }, nullptr));
  watch.end(stream.get());
  stream.synchronize();
  watch.collect();
  CHECK(watch.timed() == 1);
  CHECK(watch.transforming() >= 4ms);
}

TEST_CASE("a copy that lacked a slot waited for that, not for its batch", "[copy_watch]") {
  const bool lacks_slot = GENERATE(false, true);
  const Stream stream;
  CopyWatch watch(4, true, false);
  const auto copy = [&] {
    if (lacks_slot) watch.lack_slot();
    std::this_thread::sleep_for(2ms);
    watch.begin(stream.get());
    watch.end(stream.get());
    REQUIRE_CUDA(cudaDeviceSynchronize());  // Of the device's clock, too.
    watch.collect();
  };
  // The first copies come before the device's clock is known.
  CHECK(eventually([&] {
    copy();
    return watch.timed() >= 20 && (watch.held() > watch.idle()) == lacks_slot;
  }));
}

TEST_CASE("the clock of the device is set by one thread and read by another", "[device_clock]") {
  const Stream stream;
  penstock::Event event{cudaEventDefault};
  event.record(stream.get());
  DeviceClock clock;
  const auto start = DeviceClock::Clock::now();
  auto now = start;
  record_while_reading(
      [&] {
        now += 1s;  // Longer than the time between two settings.
        clock.set(now);
        REQUIRE_CUDA(cudaDeviceSynchronize());
      },
      [&] { clock.since(start, event.get()); });
  const auto since = clock.since(start, event.get());
  REQUIRE(since);
  CHECK(*since < 1s);
  CHECK(*since > -1s);
}
