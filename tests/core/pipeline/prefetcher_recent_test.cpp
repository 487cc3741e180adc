// SPDX-License-Identifier: Apache-2.0

// Stats::recent: the stamps of batches, as the threads of a pipeline write them.

#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using namespace std::chrono_literals;
using penstock::FailurePolicy;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::Stats;
using penstock::Ticket;
using penstock::detail::BatchTimes;
using penstock::detail::FinishedBatch;
using penstock::detail::Ticks;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

constexpr Ticks kOneMs = 1'000'000;

std::vector<std::uint64_t> numbers(const Stats& stats) {
  std::vector<std::uint64_t> numbers;
  for (const FinishedBatch& batch : stats.recent->batches) numbers.push_back(batch.number);
  return numbers;
}

}  // namespace

TEST_CASE("the stamps of a batch follow its route", "[prefetcher][recent]") {
  const int workers = GENERATE(1, 3);
  const bool per_sample = GENERATE(false, true);
  TestStream stream;
  const auto sleep = [](const auto&, auto&) { std::this_thread::sleep_for(1ms); };
  const auto row = [](const penstock::Sample&, Numbers&) { std::this_thread::sleep_for(1ms); };
  Prefetcher<Numbers> prefetcher =
      per_sample ? Prefetcher<Numbers>(numbers_layout(4), sequential(4 * 20, 4),
                                       penstock::per_sample(row), {.workers = workers})
                 : Prefetcher<Numbers>(numbers_layout(4), sequential(4 * 20, 4), sleep,
                                       {.workers = workers});
  REQUIRE(prefetcher.stats().recent != nullptr);
  CHECK(prefetcher.stats().recent->batches.empty());
  while (auto lease = prefetcher.next(stream)) std::this_thread::sleep_for(1ms);
  const Stats stats = prefetcher.stats();
  REQUIRE(stats.recent->batches.size() == 20);
  Ticks released = 0, firsts = 0;
  for (const FinishedBatch& batch : stats.recent->batches) {
    const BatchTimes& times = batch.times;
    CHECK(times.wanted > 0);
    CHECK(times.opened >= times.wanted);
    CHECK(times.filled >= times.opened + kOneMs);
    CHECK(times.staged >= times.filled);
    CHECK(times.asked >= released);
    CHECK(times.taken >= std::max(times.asked, times.staged));
    CHECK(times.released >= times.taken + kOneMs);
    CHECK(times.source_time() >= (per_sample ? 4 : 1) * kOneMs);
    CHECK(times.stream() == 0);
    CHECK_FALSE(times.second_stream());
    firsts += times.first_of_worker() ? 1 : 0;
    released = times.released;
  }
  CHECK(firsts >= 1);
  CHECK(firsts <= workers);
  CHECK(numbers(stats).front() == 0);
  CHECK(numbers(stats).back() == 19);
}

TEST_CASE("a batch that is waited for by nobody has equal stamps", "[prefetcher][recent]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 4, 4), write_numbers,
                                 {.workers = 1, .host_depth = 4, .device_depth = 2});
  while (prefetcher.stats().copy.batches < 2) std::this_thread::yield();
  prefetcher.next(stream).release();
  const Stats stats = prefetcher.stats();
  const BatchTimes& times = stats.recent->batches.at(0).times;
  CHECK(times.taken == times.asked);
  CHECK(times.staged < times.asked);
}

TEST_CASE("records tell which streams took a batch", "[prefetcher][recent]") {
  TestStream first, second;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 6, 4), write_numbers,
                                 {.workers = 1});
  for (int i = 0; i < 6; ++i) {
    auto lease = prefetcher.next(i % 3 == 2 ? second : first);
    if (i == 4) lease.also_used_on(second);
  }
  const Stats stats = prefetcher.stats();
  std::vector<int> streams, seconds;
  for (const FinishedBatch& batch : stats.recent->batches) {
    streams.push_back(batch.times.stream());
    seconds.push_back(batch.times.second_stream() ? 1 : 0);
  }
  CHECK(streams == std::vector{0, 0, 1, 0, 0, 1});
  CHECK(seconds == std::vector{0, 0, 0, 0, 1, 0});
}

TEST_CASE("there is no record of a batch that is skipped, thrown, held or dropped",
          "[prefetcher][recent]") {
  TestStream stream;
  const bool skips = GENERATE(false, true);
  Prefetcher<Numbers> prefetcher(
      numbers_layout(4), sequential(4 * 10, 4),
      [](const Ticket& ticket, Numbers& batch) {
        if (ticket.batch == 3) throw std::runtime_error("no");
        write_numbers(ticket, batch);
      },
      {.workers = 2,
       .device_depth = 3,
       .epochs = 2,
       .on_failure = skips ? FailurePolicy::skip(1.0) : FailurePolicy::abort()});
  prefetcher.next(stream).release();
  auto held = prefetcher.next(stream);
  prefetcher.next(stream).release();
  if (!skips) CHECK_THROWS(prefetcher.next(stream));
  prefetcher.next(stream).release();
  CHECK(numbers(prefetcher.stats()) == std::vector<std::uint64_t>{0, 2, 4});
  const Stats before = prefetcher.stats();
  held.release();
  CHECK(numbers(prefetcher.stats()) == std::vector<std::uint64_t>{0, 1, 2, 4});
  CHECK(numbers(prefetcher.stats().since(before)) == std::vector<std::uint64_t>{1});

  // What comes after a restart follows none of those before it.
  auto outlives = prefetcher.next(stream);
  penstock::State state = prefetcher.state();
  prefetcher.restore(state);
  CHECK(numbers(prefetcher.stats()).empty());
  outlives.release();
  CHECK(numbers(prefetcher.stats()).empty());
  prefetcher.next(stream).release();
  CHECK(numbers(prefetcher.stats()) == std::vector<std::uint64_t>{6});
}

TEST_CASE("batches that come unordered are recorded as they come", "[prefetcher][recent]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 40, 4),
                                 [](const Ticket& ticket, Numbers&) {
                                   std::this_thread::sleep_for(ticket.batch % 3 == 0 ? 3ms : 100us);
                                 },
                                 {.workers = 3, .ordered = false});
  std::vector<std::uint64_t> taken;
  while (auto lease = prefetcher.next(stream)) taken.push_back(lease.ticket().batch);
  CHECK(numbers(prefetcher.stats()) == taken);
}

TEST_CASE("far more batches than are kept", "[prefetcher][recent]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * 1000, 4), write_numbers,
                                 {.workers = 2});
  while (prefetcher.next(stream)) {
  }
  const std::vector<std::uint64_t> kept = numbers(prefetcher.stats());
  REQUIRE(kept.size() == 256);
  CHECK(kept.front() == 744);
  CHECK(kept.back() == 999);
}
