// SPDX-License-Identifier: Apache-2.0

// What a prefetcher that tunes itself costs, in calls of CUDA's.

#include <penstock/emulation.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/tuning.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

namespace emulation = penstock::emulation;
using namespace std::chrono_literals;
using penstock::Prefetcher;
using penstock::Ticket;
using penstock::Tune;
using penstock::test::allocations_of_this_thread;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::shuffled;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

/// Allocations of this thread while a pipeline is tuned. Adds the tuner's decisions to `decisions`.
std::uint64_t allocations_while_tuned(std::uint64_t& decisions) {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(4'000, 4),
                                 [](const Ticket& ticket, Numbers& batch) {
                                   if (ticket.batch < 500) std::this_thread::sleep_for(1ms);
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 1, .tune = Tune{.workers = 4}});
  for (int i = 0; i < 8; ++i) prefetcher.next(stream);
  emulation::reset_counters();
  const std::uint64_t before = allocations_of_this_thread();
  for (int i = 0; i < 400; ++i) prefetcher.next(stream);
  const std::uint64_t after = allocations_of_this_thread();
  decisions += prefetcher.stats().tuning->decisions;
  const emulation::CallClasses classes = emulation::call_classes();
  CHECK(classes.allocating == 0);
  CHECK(classes.creating == 0);
  CHECK(classes.blocking == 0);
  return after - before;
}

}  // namespace

TEST_CASE("tuning allocates nothing, creates nothing, and blocks nobody",
          "[prefetcher][tune][emulated]") {
  // The emulated runtime may allocate: seldom under the eager schedule, where work that has to wait
  // for another thread's is queued, and at any time under the others.
  std::uint64_t decisions = 0, fewest = allocations_while_tuned(decisions);
  for (int i = 0; i < 4 && fewest > 0; ++i)
    fewest = std::min(fewest, allocations_while_tuned(decisions));
  // On a machine that other work slows down, a run may have too little to go by.
  for (int i = 0; i < 20 && decisions == 0; ++i) allocations_while_tuned(decisions);
  CHECK(decisions > 0);
  if (emulation::options().schedule == emulation::Schedule::eager) CHECK(fewest == 0);
}

TEST_CASE("an Unbounded sampler has one worker, tuned or not", "[prefetcher][tune][emulated]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), penstock::Unbounded{4},
                                 [](const Ticket& ticket, Numbers& batch) {
                                   std::this_thread::sleep_for(1ms);
                                   write_numbers(ticket, batch);
                                   return ticket.batch < 60;
                                 },
                                 {.workers = 3, .tune = Tune{.workers = 4}});
  while (prefetcher.next(stream)) {
  }
  CHECK(prefetcher.stats().workers == 1);
  CHECK(prefetcher.stats().tuning->most_workers == 1);
}
