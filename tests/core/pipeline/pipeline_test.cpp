// SPDX-License-Identifier: Apache-2.0

// The records of a pipeline: there are as many as batches may be under way, whatever becomes of
// each batch. Runs emulated, under every schedule and sanitizer.

#include <penstock/prefetcher.hpp>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using penstock::FailurePolicy;
using penstock::Lease;
using penstock::Prefetcher;
using penstock::SourceError;
using penstock::State;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

/// Of ten batches nine fail.
void write_a_tenth(const Ticket& ticket, Numbers& batch) {
  if (ticket.batch % 10 != 0) throw std::runtime_error("bad");
  write_numbers(ticket, batch);
}

}  // namespace

TEST_CASE(
    "far more workers than records, leases that are held, and hardly a batch that is not skipped",
    "[pipeline]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(
      numbers_layout(2), sequential(2 * 400, 2), write_a_tenth,
      {.workers = 8, .host_depth = 1, .device_depth = 3, .on_failure = FailurePolicy::skip()});
  std::vector<Lease<Numbers>> held(2);
  std::uint64_t batches = 0;
  while (auto lease = prefetcher.next(stream)) {
    CHECK(lease.ticket().batch == 10 * batches);
    held[batches++ % 2] = std::move(lease);
  }
  CHECK(batches == 40);
  CHECK(prefetcher.stats().skipped == 360);
}

TEST_CASE("more errors than records, while all leases but one are held", "[pipeline]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(2), sequential(2 * 100, 2), write_a_tenth,
                                 {.workers = 4, .host_depth = 2, .device_depth = 2});
  const Lease<Numbers> held = prefetcher.next(stream);
  std::uint64_t batches = 1, errors = 0;
  while (true) try {
      if (!prefetcher.next(stream)) break;
      ++batches;
    } catch (const SourceError&) {
      ++errors;
    }
  CHECK(batches == 10);
  CHECK(errors == 90);
  CHECK(held.ticket().samples[1] == 1);  // Its record is still its own.
}

TEST_CASE("one lease is held while far more batches pass than there are records", "[pipeline]") {
  TestStream stream;
  for (const bool ordered : {true, false}) {
    Prefetcher<Numbers> prefetcher(
        numbers_layout(2), sequential(2 * 100, 2), write_numbers,
        {.workers = 3, .host_depth = 2, .device_depth = 2, .ordered = ordered});
    const Lease<Numbers> held = prefetcher.next(stream);
    const std::uint64_t first = held.ticket().samples[0];
    std::uint64_t others = 0;
    while (prefetcher.next(stream)) ++others;
    CHECK(others == 99);
    CHECK(held.ticket().samples[0] == first);
  }
}

TEST_CASE("leases end while restore empties the pipeline: each record comes back once",
          "[pipeline]") {
  constexpr std::size_t kSlots = 3;
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(2), sequential(2 * 50, 2), write_numbers,
                                 {.workers = 2, .host_depth = 2, .device_depth = kSlots});
  const State start = prefetcher.state();
  for (int round = 0; round < 40; ++round) {
    std::vector<Lease<Numbers>> leases;
    for (std::size_t i = 0; i < kSlots; ++i) leases.push_back(prefetcher.next(stream));
    std::thread ends([&] { leases.clear(); });
    prefetcher.restore(start);
    ends.join();
    CHECK(prefetcher.state() == start);
  }
  std::uint64_t batches = 0;
  while (auto lease = prefetcher.next(stream)) CHECK(lease.ticket().batch == batches++);
  CHECK(batches == 50);
}

TEST_CASE("a lease that outlives a restore keeps its record and its slot", "[pipeline]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(2), sequential(2 * 20, 2), write_numbers,
                                 {.workers = 2, .host_depth = 2, .device_depth = 2});
  const State start = prefetcher.state();
  const Lease<Numbers> held = prefetcher.next(stream);
  prefetcher.restore(start);
  std::uint64_t batches = 0;
  while (auto lease = prefetcher.next(stream)) {
    CHECK(lease.ticket().batch == batches++);
    CHECK(lease.slot() != held.slot());
    CHECK(held.ticket().samples[1] == 1);
  }
  CHECK(batches == 20);
}

TEST_CASE("errors are thrown in their places, though the batches behind them are copied",
          "[pipeline]") {
  TestStream stream;
  std::atomic<int> written{0};
  Prefetcher<Numbers> prefetcher(numbers_layout(2), sequential(2 * 6, 2),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   if (ticket.batch < 3) throw std::runtime_error("bad");
                                   write_numbers(ticket, batch);
                                   ++written;
                                 },
                                 {.workers = 1, .host_depth = 4, .device_depth = 2});
  CHECK(eventually([&] { return prefetcher.stats().copy.batches == 2; }));
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    CHECK(prefetcher.state().batch == batch);
    CHECK_THROWS_AS(prefetcher.next(stream), SourceError);
  }
  for (std::uint64_t batch = 3; batch < 6; ++batch)
    CHECK(prefetcher.next(stream).ticket().batch == batch);
  CHECK_FALSE(prefetcher.next(stream));
  CHECK(written == 3);
}
