// SPDX-License-Identifier: Apache-2.0

// What a prefetcher's stats() tell with device_times. Runs emulated, and on a GPU.

#include <penstock/prefetcher.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using namespace std::chrono_literals;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::Stats;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

/// So long something is held up. How long the rest of a test takes nobody knows.
constexpr auto kLong = 50ms;

class Timer {
 public:
  std::chrono::nanoseconds elapsed() const { return std::chrono::steady_clock::now() - begin_; }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::chrono::nanoseconds waiting(const Stats& stats) {
  return stats.device->awaiting_batch + stats.device->awaiting_copy;
}

// The device's clock is its own.
constexpr auto kClocks = 1ms;

}  // namespace

TEST_CASE("device times are of every batch, but for the first", "[prefetcher][device_times]") {
  const int workers = GENERATE(0, 1, 3);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 50, 4), write_numbers,
                                 {.workers = workers, .device_times = true});
  CHECK(prefetcher.stats().device->batches == 0);
  while (prefetcher.next(stream)) {
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Stats stats = prefetcher.stats();
  REQUIRE(stats.device);
  CHECK(stats.device->copies == 50);
  CHECK(stats.device->batches == 49);
  CHECK(stats.device->longest_wait <= stats.device->awaiting_batch + stats.device->awaiting_copy);
  CHECK(stats.copy.batches == 50);
}

TEST_CASE("without device_times there are none", "[prefetcher][device_times]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 5, 4), write_numbers,
                                 {.workers = 1});
  while (prefetcher.next(stream)) {
  }
  CHECK_FALSE(prefetcher.stats().device);
}

TEST_CASE("a stream that works is consuming, and the copy waits for its slot",
          "[prefetcher][device_times]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 6, 4), write_numbers,
                                 {.workers = 1, .device_depth = 2, .device_times = true});
  Gate gate;
  const Timer timer;
  prefetcher.next(stream).release();
  gate.hold(stream);  // Whatever comes after the first batch takes long.
  prefetcher.next(stream).release();
  gate.wait_until_reached();
  REQUIRE(eventually([&] { return prefetcher.stats().copy.batches >= 3; }));
  std::this_thread::sleep_for(2 * kLong);  // The copy stream may come to its wait late.
  gate.open();
  while (prefetcher.next(stream)) {
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Stats stats = prefetcher.stats();
  CHECK(stats.device->consuming >= kLong);
  CHECK(stats.device->consuming + waiting(stats) <= timer.elapsed() + kClocks);
  CHECK(stats.copy.waiting_for_room >= kLong);
  CHECK(stats.copy.waiting_for_room + stats.copy.busy <=
        timer.elapsed() + stats.first_batch + kClocks);
}

TEST_CASE("a stream without a batch waits for the source, the copy stream too",
          "[prefetcher][device_times]") {
  const int workers = GENERATE(0, 1);
  TestStream stream;
  std::atomic<int> asked{0};
  const auto slow_for_batch_2 = [&](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch == 2) {
      CHECK(eventually([&] { return asked == 3; }));
      std::this_thread::sleep_for(kLong);
    }
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 4, 4), slow_for_batch_2,
                                 {.workers = workers, .device_times = true});
  const Timer timer;
  for (asked = 1; prefetcher.next(stream); ++asked) REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Stats stats = prefetcher.stats();
  // The sleep may have begun before the stream was out of work, by a little.
  CHECK(stats.device->awaiting_batch >= kLong / 2);
  CHECK(stats.device->longest_wait >= kLong / 2);
  CHECK(stats.device->consuming + waiting(stats) <= timer.elapsed() + kClocks);
  CHECK(stats.longest_wait >= kLong / 2);
  CHECK(stats.copy.waiting_for_input >= kLong / 2);
}

TEST_CASE("the first wait is the fill of the pipe, and is left out", "[prefetcher][device_times]") {
  TestStream stream;
  const auto slow_at_first = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch == 0) std::this_thread::sleep_for(2 * kLong);
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 20, 4), slow_at_first,
                                 {.workers = 1, .device_times = true});
  prefetcher.next(stream).release();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Timer timer;  // of all but the first
  while (prefetcher.next(stream)) {
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Stats stats = prefetcher.stats();
  CHECK(stats.first_batch >= 2 * kLong);
  CHECK(waiting(stats) <= timer.elapsed() + kClocks);
  CHECK(stats.longest_wait <= timer.elapsed());
}

TEST_CASE("far more batches than marks, from snapshot to snapshot", "[prefetcher][device_times]") {
  TestStream stream, other;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 2000, 4), write_numbers,
                                 {.workers = 2, .host_depth = 3, .device_times = true});
  Stats before = prefetcher.stats();
  for (int i = 0; i < 2000; ++i) {
    prefetcher.next(i % 3 == 0 ? other : stream).release();
    if (i % 100 != 0) continue;
    const Stats now = prefetcher.stats();
    CHECK(now.device->batches >= before.device->batches);
    CHECK(now.device->batches <= static_cast<std::uint64_t>(i));
    CHECK(now.device->consuming >= before.device->consuming);
    before = now;
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Stats stats = prefetcher.stats();
  CHECK(stats.device->batches == 1999);
  CHECK(stats.device->copies == 2000);
}
