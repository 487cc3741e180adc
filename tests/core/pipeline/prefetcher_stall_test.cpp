// SPDX-License-Identifier: Apache-2.0

// What a prefetcher says when nothing moves: which stage, which batch (promise P10). Runs emulated,
// and on a GPU.

#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/stalls.hpp"

using namespace std::chrono_literals;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::StallError;
using penstock::Ticket;
using penstock::test::Gate;
using penstock::test::next_after_stalls;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::shuffled;
using penstock::test::stall;
using penstock::test::TestStream;
using penstock::test::write_numbers;

TEST_CASE("a stall names its stage: every slot is leased", "[prefetcher]") {
  const int workers = GENERATE(0, 2);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), write_numbers,
                                 {.workers = workers, .device_depth = 2, .stall_timeout = 30ms});
  auto a = next_after_stalls(prefetcher, stream);
  const auto b = next_after_stalls(prefetcher, stream);
  const StallError error = stall(prefetcher, stream, "consumer");
  CHECK(std::string(error.what()).find("stream capture") == std::string::npos);
  CHECK(error.batch() == 2);
  CHECK(error.waited() == 30ms);
  a.release();
  CHECK(next_after_stalls(prefetcher, stream).ticket().batch == 2);
}

TEST_CASE("a stall before the first batch names what a worker may be in", "[prefetcher]") {
  TestStream stream;
  std::atomic<bool> go{false};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), penstock::per_worker([&] {
                                   while (!go) std::this_thread::yield();
                                   return write_numbers;
                                 }),
                                 {.workers = 1, .stall_timeout = 30ms});
  const std::string what = stall(prefetcher, stream, "source", "per_worker").what();
  CHECK(what.find("between batches") == std::string::npos);
  go = true;
  CHECK(next_after_stalls(prefetcher, stream));
}

TEST_CASE("a stall names its stage: the source does not return", "[prefetcher]") {
  TestStream stream;
  std::atomic<bool> go{false};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   while (ticket.batch == 3 && !go) std::this_thread::yield();
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 1, .stall_timeout = 100ms});
  for (int i = 0; i < 3; ++i) next_after_stalls(prefetcher, stream);
  const StallError error = stall(prefetcher, stream, "source");
  CHECK(error.epoch() == 0);
  CHECK(error.batch() == 3);
  go = true;
  CHECK(next_after_stalls(prefetcher, stream).ticket().batch == 3);
}

TEST_CASE("a stall names its stage: copies do not come through", "[prefetcher]") {
  Gate gate;
  TestStream stream;
  Prefetcher<Numbers> prefetcher(
      numbers_layout(4), shuffled(100, 4), write_numbers,
      {.workers = 1, .host_depth = 2, .device_depth = 1, .stall_timeout = 100ms});
  next_after_stalls(prefetcher, stream).release();
  gate.hold(stream);
  stall(prefetcher, stream, "copy", "", 10);
  gate.open();
  CHECK(next_after_stalls(prefetcher, stream));
}

TEST_CASE("a stall names the batch that is late, in whatever order batches come", "[prefetcher]") {
  TestStream stream;
  std::atomic<bool> go{false};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   while (ticket.batch == 0 && !go) std::this_thread::yield();
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 2, .ordered = false, .stall_timeout = 2s});
  for (int i = 0; i < 9; ++i) CHECK(prefetcher.next(stream).ticket().batch != 0);
  CHECK(stall(prefetcher, stream, "source").batch() == 0);
  go = true;
  CHECK(next_after_stalls(prefetcher, stream).ticket().batch == 0);
}

TEST_CASE("a stall names its stage: a store that is told of what comes later", "[prefetcher]") {
  const bool by_sample = GENERATE(false, true);
  TestStream stream;
  std::atomic<bool> go{false};
  penstock::AnySource<Numbers> source = write_numbers;
  if (by_sample)
    source = penstock::per_sample([](const penstock::Sample& sample, Numbers& batch) {
      batch.sample(sample.row) = sample.index;
    });
  Prefetcher<Numbers> prefetcher(
      numbers_layout(4), shuffled(40, 4), source,
      {.workers = 1,
       .stall_timeout = 100ms,
       .read_ahead = {[&, calls = 0](std::span<const std::uint64_t>) mutable {
                        while (calls == 2 && !go) std::this_thread::yield();
                        ++calls;
                      },
                      1}});
  for (int i = 0; i < 2; ++i) next_after_stalls(prefetcher, stream);
  CHECK(stall(prefetcher, stream, "read ahead", "will_need").batch() == 2);
  go = true;
  for (std::uint64_t i = 2; i < 10; ++i)
    CHECK(next_after_stalls(prefetcher, stream).ticket().batch == i);
}

TEST_CASE("a stall says what was skipped, how often and why", "[prefetcher]") {
  const int kind = GENERATE(0, 1, 2);
  TestStream stream;
  std::atomic<bool> go{false};
  const auto fail = [&](std::uint64_t epoch, std::uint64_t batch) {
    if (!go && (epoch > 0 || batch > 2)) throw std::runtime_error("no such bucket");
  };
  penstock::AnySource<Numbers> source = [&](const Ticket& ticket, Numbers& batch) {
    fail(ticket.epoch, ticket.batch);
    write_numbers(ticket, batch);
  };
  if (kind == 1)
    source = penstock::per_sample([&](const penstock::Sample& sample, Numbers& batch) {
      fail(sample.epoch, sample.batch);
      batch.sample(sample.row) = sample.index;
    });
  if (kind == 2)
    source = penstock::on_device(
        [&](const Ticket& ticket, Numbers&, cudaStream_t) { fail(ticket.epoch, ticket.batch); });
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), source,
                                 {.workers = 2,
                                  .epochs = 1'000'000'000,
                                  .on_failure = penstock::FailurePolicy::skip(),
                                  .stall_timeout = 100ms});
  for (int i = 0; i < 3; ++i) next_after_stalls(prefetcher, stream);
  const std::string what =
      stall(prefetcher, stream, kind == 2 ? "device source" : "source", "has skipped ").what();
  INFO(what);
  CHECK(what.find(kind == 1 ? " samples" : " batches") != std::string::npos);
  CHECK(what.find("and nothing was left") != std::string::npos);
  CHECK(what.find("no such bucket") != std::string::npos);
  CHECK(what.find("waiting for room") == std::string::npos);
  go = true;
  CHECK(next_after_stalls(prefetcher, stream));
}

TEST_CASE("each of several threads waits one time-out, not those of the others too",
          "[prefetcher]") {
  constexpr auto kTimeOut = 500ms;
  std::atomic<bool> go{false};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   while (!go) std::this_thread::sleep_for(1ms);
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 1, .stall_timeout = kTimeOut});
  using Clock = std::chrono::steady_clock;
  const std::array<TestStream, 4> streams;
  std::array<Clock::time_point, streams.size()> told;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < streams.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        prefetcher.next(streams.at(i));
      } catch (const StallError&) {
        told.at(i) = Clock::now();
      }
    });
  for (std::thread& thread : threads) thread.join();
  go = true;
  CHECK(*std::min_element(told.begin(), told.end()) != Clock::time_point());
  // One after the other they would be three time-outs apart.
  CHECK(*std::max_element(told.begin(), told.end()) - *std::min_element(told.begin(), told.end()) <
        2 * kTimeOut);
}

TEST_CASE("a thread beside which others are served is not told of a stall", "[prefetcher]") {
  constexpr auto kTimeOut = 400ms;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(80, 4),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   std::this_thread::sleep_for(kTimeOut / 5);
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 1, .stall_timeout = kTimeOut});
  std::atomic<int> stalls{0}, batches{0};
  const std::array<TestStream, 8> streams;
  std::vector<std::thread> threads;
  for (const TestStream& stream : streams)
    threads.emplace_back([&] {
      try {
        while (prefetcher.next(stream)) ++batches;
      } catch (const StallError&) {
        ++stalls;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(stalls == 0);
  CHECK(batches == 20);
}

// There is room for one batch. Of two workers one fills it, and the other one has waited for
// longer.
TEST_CASE("a stall names the worker in the source, not the one that waits behind it",
          "[prefetcher]") {
  TestStream stream;
  std::atomic<std::uint64_t> entered{0}, released{0};  // batches
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   entered = ticket.batch + 1;
                                   while (ticket.batch >= released) std::this_thread::yield();
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 2, .host_depth = 1, .stall_timeout = 30ms});
  for (std::uint64_t batch = 0; batch < 10; ++batch) {
    while (entered != batch + 1) std::this_thread::yield();
    try {
      prefetcher.next(stream);
      FAIL("the source was held");
    } catch (const StallError& error) {
      CHECK(error.stage() == "source");
      CHECK(error.batch() == batch);
    }
    released = batch + 1;
    CHECK(next_after_stalls(prefetcher, stream).ticket().batch == batch);
  }
}

TEST_CASE("a stall time-out: for ever, or not a time at all", "[prefetcher]") {
  const int workers = GENERATE(0, 1);
  const TestStream stream;
  const auto make = [&](std::chrono::milliseconds stall_timeout) {
    Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4),
                                   [](const Ticket& ticket, Numbers& batch) {
                                     std::this_thread::sleep_for(2ms);  // next() has to wait.
                                     write_numbers(ticket, batch);
                                   },
                                   {.workers = workers, .stall_timeout = stall_timeout});
    std::uint64_t batches = 0;
    while (prefetcher.next(stream)) ++batches;
    return batches;
  };
  CHECK(make(std::chrono::milliseconds::max()) == 10);
  CHECK(make(std::chrono::milliseconds::max() - 1ms) == 10);
  CHECK(make(0ms) == 10);
  CHECK_THROWS_AS(make(-1ms), std::invalid_argument);
}
