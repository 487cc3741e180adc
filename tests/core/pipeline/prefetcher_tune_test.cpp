// SPDX-License-Identifier: Apache-2.0

// A prefetcher that tunes itself. Runs emulated, and on a GPU. Time is only what sources and loops
// sleep, against none at all: what is checked is the direction of what was found.

#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/tuning.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/stalls.hpp"
#include "support/thrown.hpp"

using namespace std::chrono_literals;
using penstock::AnySource;
using penstock::Lease;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Sample;
using penstock::Stats;
using penstock::Ticket;
using penstock::Tune;
using penstock::TuneDecision;
using penstock::TuneKnob;
using penstock::TuneReason;
using penstock::test::eventually;
using penstock::test::Mentions;
using penstock::test::next_after_stalls;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::NumbersSink;
using penstock::test::shuffled;
using penstock::test::stall;
using penstock::test::TestStream;
using penstock::test::thrown;
using penstock::test::write_numbers;

namespace {

constexpr std::int64_t kRows = 4;
constexpr std::uint64_t kMany = 100'000;

PrefetcherOptions tuned(int workers, int most) {
  return {.workers = workers, .tune = Tune{.workers = most}};
}

/// How long a slow source takes for a batch. On a busy machine the loop may be slower still.
std::atomic<int> slow_milliseconds{3};

void be_slow() {
  std::this_thread::sleep_for(std::chrono::milliseconds(slow_milliseconds));
}

void write_slowly(const Ticket& ticket, Numbers& batch) {
  be_slow();
  write_numbers(ticket, batch);
}

/// Takes batches until `found` holds for the stats; false: it never did.
template <class Found>
bool take_until(Prefetcher<Numbers>& prefetcher, cudaStream_t stream, Found found,
                std::chrono::milliseconds step = 0ms, int batches = 3000) {
  for (int i = 0; i < batches; ++i) {
    const auto batch = prefetcher.next(stream);
    if (step > 0ms) std::this_thread::sleep_for(step);
    if (found(prefetcher.stats())) return true;
  }
  return false;
}

/// Takes batches of a slow source until more than one worker runs. Makes the source slower now and
/// then, until it is what the loop waits for. False: still one worker runs.
bool take_until_more_workers(Prefetcher<Numbers>& prefetcher, cudaStream_t stream) {
  const auto has_more = [](const Stats& stats) { return stats.workers > 1; };
  bool found = false;
  for (slow_milliseconds = 3; !found && slow_milliseconds < 100;)
    if (found = take_until(prefetcher, stream, has_more, 0ms, 500); !found)
      slow_milliseconds = 2 * slow_milliseconds;
  slow_milliseconds = 3;
  return found;
}

bool has(const Stats& stats, TuneKnob knob, TuneReason reason) {
  return std::any_of(stats.tuning->last.begin(), stats.tuning->last.end(),
                     [&](const TuneDecision& decision) {
                       return decision.knob == knob && decision.reason == reason;
                     });
}

}  // namespace

TEST_CASE("a slow source ends with more workers that run, and says why", "[prefetcher][tune]") {
  TestStream stream;
  const int kind = GENERATE(0, 1, 2);
  CAPTURE(kind);
  const auto write_row = [](const Sample& sample, Numbers& batch) {
    be_slow();
    batch.sample(sample.row) = sample.index;
  };
  const auto on_the_device = [](const Ticket&, Numbers&, cudaStream_t) { be_slow(); };
  AnySource<Numbers> source = write_slowly;
  if (kind == 1) source = penstock::per_sample(write_row);
  if (kind == 2) source = penstock::on_device(on_the_device);
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(kMany * kRows, kRows),
                                 std::move(source), tuned(1, 4));
  const Stats before = prefetcher.stats();
  CHECK(before.workers == 1);
  REQUIRE(before.tuning);
  CHECK(before.tuning->most_workers == 4);
  CHECK(before.tuning->last.empty());
  REQUIRE(take_until_more_workers(prefetcher, stream));
  const Stats after = prefetcher.stats();
  CHECK(has(after, TuneKnob::workers, TuneReason::faster));
  CHECK(after.tuning->decisions >= 1);
  CHECK(after.host_bytes == before.host_bytes);  // All was reserved.
  CHECK(after.device_bytes == before.device_bytes);
  if (kind == 0) CHECK(after.host_depth > before.host_depth);
  if (kind == 2) CHECK(after.device_depth > before.device_depth);
  std::ostringstream text;
  text << after;
  CHECK(text.str().find("\ntuned: ") != std::string::npos);
}

TEST_CASE("workers that a slow loop does not need are parked", "[prefetcher][tune]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(kMany * kRows, kRows),
                                 write_numbers, tuned(3, 4));
  CHECK(take_until(
      prefetcher, stream, [](const Stats& stats) { return stats.workers == 1; }, 3ms));
  CHECK(has(prefetcher.stats(), TuneKnob::workers, TuneReason::cheaper));
}

TEST_CASE("as many threads run the source as are allowed, the others are parked",
          "[prefetcher][tune]") {
  TestStream stream;
  std::atomic<int> inside{0}, most_inside{0}, made{0};
  const auto make = [&] {
    ++made;
    return [&](const Ticket& ticket, Numbers& batch) {
      const int now = ++inside;
      for (int seen = most_inside; seen < now && !most_inside.compare_exchange_weak(seen, now);) {
      }
      write_numbers(ticket, batch);
      --inside;
    };
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(40 * kRows, kRows),
                                 penstock::per_worker(make), tuned(1, 6));
  while (prefetcher.next(stream)) {
  }
  CHECK(eventually([&] { return made == 6; }));  // A thread may start late.
  if (prefetcher.stats().tuning->decisions == 0) CHECK(most_inside == 1);
}

TEST_CASE("of the blocks that are reserved, only those that are in use are filled",
          "[prefetcher][tune]") {
  TestStream stream;
  std::atomic<bool> constructed{false};
  std::atomic<std::uint64_t> begun{0};
  const auto source = [&](const Ticket& ticket, Numbers& batch) {
    while (!constructed) std::this_thread::yield();
    ++begun;
    write_numbers(ticket, batch);
  };
  constexpr std::size_t kBlocks = 2, kSlots = 2, kReserved = 12;
  Prefetcher<Numbers> prefetcher(
      numbers_layout(kRows), shuffled(kMany * kRows, kRows), source,
      {.workers = 1,
       .host_depth = kBlocks,
       .device_depth = kSlots,
       .tune = Tune{.workers = 1, .host_bytes = kReserved * numbers_layout(kRows).bytes()}});
  constructed = true;
  for (std::uint64_t taken = 0; taken < 4; ++taken) {
    CHECK(eventually([&] { return begun >= kBlocks + kSlots + taken; }));
    std::this_thread::sleep_for(2ms);  // A worker that had another block would begin one more.
    CHECK(begun == kBlocks + kSlots + taken);
    REQUIRE(prefetcher.next(stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  CHECK(prefetcher.stats().host_depth == kBlocks);
}

TEST_CASE("batches and their order do not depend on tuning", "[prefetcher][tune]") {
  constexpr std::uint64_t kBatches = 120;
  TestStream stream;
  const auto uneven = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch % 40 < 20) std::this_thread::sleep_for(1ms);
    write_numbers(ticket, batch);
  };
  const auto deliver = [&](PrefetcherOptions options) {
    Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(kBatches * kRows, kRows), uneven,
                                   std::move(options));
    NumbersSink sink(kRows, kBatches);
    std::vector<std::uint64_t> order;
    while (const auto batch = prefetcher.next(stream)) {
      order.push_back(batch.ticket().batch);
      sink.take(batch, stream);
    }
    sink.wait(stream);
    for (std::uint64_t batch = 0; batch < kBatches; ++batch)
      for (const std::uint64_t sample : sink.sample_numbers(batch)) order.push_back(sample);
    return order;
  };
  CHECK(deliver(tuned(1, 5)) == deliver({.workers = 1}));
}

TEST_CASE("a tuned prefetcher ends at any time, with workers parked", "[prefetcher][tune]") {
  TestStream stream;
  const int batches = GENERATE(0, 1, 30, 100);
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(60 * kRows, kRows), write_slowly,
                                 tuned(1, 6));
  for (int i = 0; i < batches; ++i) prefetcher.next(stream);  // 60, and then the end
  CHECK(static_cast<bool>(prefetcher.next(stream)) == (batches < 60));
}

TEST_CASE("a tuned prefetcher goes on from a state with the settings that it has",
          "[prefetcher][tune]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(kMany * kRows, kRows),
                                 write_slowly, tuned(1, 4));
  const penstock::State start = prefetcher.state();
  REQUIRE(take_until_more_workers(prefetcher, stream));
  const int workers = prefetcher.stats().workers;
  prefetcher.restore(start);
  CHECK(prefetcher.stats().workers == workers);
  for (std::uint64_t batch = 0; batch < 30; ++batch)
    CHECK(prefetcher.next(stream).ticket().batch == batch);
}

TEST_CASE("a consumer that holds more leases gets more slots, up to the bound",
          "[prefetcher][tune]") {
  TestStream stream;
  PrefetcherOptions options = tuned(1, 2);
  options.tune->device_slots = 4;
  options.stall_timeout = 50ms;
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(40 * kRows, kRows), write_numbers,
                                 options);
  CHECK(prefetcher.stats().device_depth == 2);
  std::vector<Lease<Numbers>> leases;
  while (leases.size() < 4) try {
      leases.push_back(prefetcher.next(stream));
    } catch (const penstock::StallError&) {  // A slow machine.
    }
  CHECK(prefetcher.stats().device_depth == 4);
  CHECK(has(prefetcher.stats(), TuneKnob::device_depth, TuneReason::leases));
  try {
    prefetcher.next(stream);
    FAIL("there was no slot");
  } catch (const penstock::StallError& error) {
    CHECK(error.stage() == "consumer");
    CHECK(std::string(error.what()).find("raise Tune::device_slots") != std::string::npos);
  }
  leases.clear();
  CHECK(eventually([&] {
    try {
      return static_cast<bool>(prefetcher.next(stream));
    } catch (const penstock::StallError&) {
      return false;
    }
  }));
}

TEST_CASE("a stall names the worker in the source, and none that is parked", "[prefetcher][tune]") {
  TestStream stream;
  std::atomic<bool> go{false};
  const auto held = [&](const Ticket& ticket, Numbers& batch) {
    while (ticket.batch == 2 && !go) std::this_thread::yield();
    write_numbers(ticket, batch);
  };
  PrefetcherOptions options = tuned(1, 6);
  options.stall_timeout = 100ms;
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(40 * kRows, kRows), held, options);
  for (int i = 0; i < 2; ++i) next_after_stalls(prefetcher, stream);
  CHECK(stall(prefetcher, stream, "source", "inside the source").batch() == 2);
  go = true;
}

TEST_CASE("a worker without a source is replaced by one that is parked", "[prefetcher][tune]") {
  TestStream stream;
  std::atomic<int> made{0};
  const auto make = [&] {
    if (made++ < 3) throw std::runtime_error("no decoder");
    return [](const Ticket& ticket, Numbers& batch) { write_numbers(ticket, batch); };
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shuffled(20 * kRows, kRows),
                                 penstock::per_worker(make), tuned(1, 4));
  int errors = 0, batches = 0;
  for (bool more = true; more;) try {
      more = static_cast<bool>(prefetcher.next(stream));
      batches += more ? 1 : 0;
    } catch (const penstock::WorkerError&) {
      ++errors;
    }
  CHECK(batches == 20);
  CHECK(errors <= 3);
}

TEST_CASE("bounds that contradict the other settings are errors", "[prefetcher][tune]") {
  const auto construct = [](PrefetcherOptions options) {
    Prefetcher<Numbers>(numbers_layout(kRows), shuffled(40, kRows), write_numbers,
                        std::move(options));
  };
  const auto refused = [&](PrefetcherOptions options) {
    return thrown<std::invalid_argument>([&] { construct(std::move(options)); });
  };
  const std::size_t block = numbers_layout(kRows).bytes();
  CHECK_THAT(refused({.tune = Tune{.workers = -1}}), Mentions("Tune::workers is -1"));
  CHECK_THAT(refused({.device_depth = 3, .tune = Tune{.device_slots = 2}}),
             Mentions("Tune::device_slots is 2, less than device_depth, with which it starts (3)"));
  CHECK_THAT(
      refused({.host_depth = 5, .tune = Tune{.host_bytes = 4 * block}}),
      Mentions("room for 4 batches") && Mentions("raise it, or lower host_depth, which is 5"));
  CHECK_THAT(refused({.tune = Tune{.host_bytes = block - 1}}), Mentions("give room for one"));
  CHECK_THAT(refused({.max_host_bytes = 4 * block, .tune = Tune{.host_bytes = 5 * block}}),
             Mentions("over max_host_bytes"));
  CHECK_THAT(refused({.workers = -1, .tune = Tune{}}), Mentions("workers is -1"));
  CHECK_NOTHROW(construct({.host_depth = 5, .tune = Tune{.host_bytes = 5 * block}}));
}

TEST_CASE("what is reserved keeps to the bounds", "[prefetcher][tune]") {
  const std::size_t block = numbers_layout(kRows).bytes();
  const auto stats_of = [](PrefetcherOptions options) {
    return Prefetcher<Numbers>(numbers_layout(kRows), shuffled(40, kRows), write_numbers,
                               std::move(options))
        .stats();
  };
  const Stats bytes = stats_of({.workers = 2, .tune = Tune{.workers = 8, .host_bytes = 6 * block}});
  CHECK(bytes.host_bytes == 6 * block);
  CHECK(bytes.tuning->most_host_depth == 6);
  CHECK(bytes.tuning->most_workers == 6);  // Each fills a batch of its own.
  CHECK(bytes.host_depth == 3);
  CHECK(bytes.workers == 2);
  const Stats usual = stats_of({.workers = 99, .tune = Tune{.workers = 3}});
  CHECK(usual.workers == 3);
  CHECK(usual.tuning->most_host_depth == 8);
  CHECK(usual.tuning->most_device_depth == 3);
  const Stats capped =
      stats_of({.workers = 1, .max_host_bytes = 5 * block, .tune = Tune{.workers = 8}});
  CHECK(capped.tuning->most_host_depth == 5);
  CHECK(stats_of({.workers = 2, .host_depth = 7, .tune = Tune{.workers = 8}}).host_depth == 7);
  CHECK(stats_of({}).tuning == nullptr);
}
