// SPDX-License-Identifier: Apache-2.0

// The batches of a BatchProducer: their order, their number, and the blocks that they are in. What
// a source may do: batch_producer_source_test.cpp.

#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

using namespace std::chrono_literals;
using penstock::AnySource;
using penstock::BatchProducer;
using penstock::HostBatch;
using penstock::PinnedPool;
using penstock::Sampler;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Mentions;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::read_all;
using penstock::test::read_numbers;
using penstock::test::sequential;
using penstock::test::serial_sample_numbers;
using penstock::test::thrown;
using penstock::test::write_numbers;

namespace {

/// Holds a source inside a batch until the test says so.
class Latch {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace

TEST_CASE("batches come in order, whatever the number of workers and the depth",
          "[batch_producer]") {
  const auto [workers, depth] = GENERATE(
      table<int, std::size_t>({{0, 1}, {1, 1}, {1, 4}, {2, 1}, {2, 3}, {3, 16}, {8, 2}, {8, 20}}));
  const Sampler sampler{{.samples = 103, .batch_size = 8, .shuffle = true, .seed = 5}};
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(8), sampler, write_numbers, pool,
                                  {.workers = workers, .depth = depth, .epochs = 3});
  CHECK(read_all(producer) == serial_sample_numbers(sampler, 3));
  CHECK_FALSE(producer.next());
  CHECK(producer.stats().batches == 3 * 13);
}

TEST_CASE("unordered, every batch comes once", "[batch_producer]") {
  const Sampler sampler{{.samples = 103, .batch_size = 8, .shuffle = true, .seed = 5}};
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(8), sampler, write_numbers, pool,
                                  {.workers = 4, .depth = 5, .epochs = 2, .ordered = false});
  std::vector<std::uint64_t> all = read_all(producer);
  std::vector<std::uint64_t> expected = serial_sample_numbers(sampler, 2);
  std::sort(all.begin(), all.end());
  std::sort(expected.begin(), expected.end());
  CHECK(all == expected);
}

TEST_CASE("unordered, a slow batch does not hold up the others", "[batch_producer]") {
  Latch latch;
  const auto source = [&](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch == 0) latch.wait();
    write_numbers(ticket, batch);
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 40, .batch_size = 4}},
                                  source, pool, {.workers = 2, .depth = 4, .ordered = false});
  for (int i = 0; i < 9; ++i) CHECK(producer.next()->ticket().batch != 0);
  latch.open();
  CHECK(producer.next()->ticket().batch == 0);
  CHECK_FALSE(producer.next());
}

TEST_CASE("tickets are pure functions of seed, epoch and batch", "[batch_producer]") {
  const Sampler sampler{{.samples = 64, .batch_size = 8, .shuffle = true, .seed = 9}};
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  std::set<Key> seen[2];
  for (int run = 0; run < 2; ++run) {
    PinnedPool pool;
    BatchProducer<Numbers> producer(numbers_layout(8), sampler, write_numbers, pool,
                                    {.workers = 1 + 3 * run, .epochs = 4});
    while (auto batch = producer.next()) {
      const Ticket& ticket = batch->ticket();
      seen[run].emplace(ticket.epoch, ticket.batch, ticket.seed);
      CHECK((*batch)->seed == ticket.seed);
      CHECK(read_numbers(*batch) ==
            std::vector<std::uint64_t>(ticket.samples.begin(), ticket.samples.end()));
    }
  }
  CHECK(seen[0] == seen[1]);
  std::set<std::uint64_t> seeds;
  for (const Key& key : seen[0]) seeds.insert(std::get<2>(key));
  CHECK(seeds.size() == 32);
}

TEST_CASE("no more than `depth` batches are filled ahead", "[batch_producer]") {
  constexpr std::size_t kDepth = 3;
  std::atomic<std::uint64_t> begun{0};
  const auto source = [&](const Ticket& ticket, Numbers& batch) {
    ++begun;
    write_numbers(ticket, batch);
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(1), Sampler{{.samples = 50, .batch_size = 1}},
                                  source, pool, {.workers = 4, .depth = kDepth});
  for (std::uint64_t taken = 0; taken < 50; ++taken) {
    CHECK(eventually([&] { return begun == std::min<std::uint64_t>(50, taken + kDepth); }));
    CHECK(begun <= taken + kDepth);
    producer.next();
  }
  CHECK(pool.stats().blocks <= kDepth + 1);  // and the one that `next` hands out
}

TEST_CASE("there is no gap between epochs: the next one begins while this one is taken",
          "[batch_producer]") {
  std::atomic<bool> second_epoch{false};
  const auto source = [&](const Ticket& ticket, Numbers& batch) {
    if (ticket.epoch == 1) second_epoch = true;
    write_numbers(ticket, batch);
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 8, .batch_size = 4}},
                                  source, pool, {.workers = 1, .depth = 4, .epochs = 2});
  CHECK(eventually([&] { return second_epoch.load(); }));  // Nothing was taken yet.
}

TEST_CASE("unordered, batches that were begun before the end still come", "[batch_producer]") {
  Latch latch;
  const auto source = [&](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch == 0) latch.wait();
    write_numbers(ticket, batch);
    return ticket.batch < 3;
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), penstock::Unbounded::indexed(4), source, pool,
                                  {.workers = 2, .depth = 8, .ordered = false});
  std::set<std::uint64_t> batches;
  for (int i = 0; i < 2; ++i) batches.insert(producer.next()->ticket().batch);
  latch.open();
  while (auto batch = producer.next()) batches.insert(batch->ticket().batch);
  CHECK(batches == std::set<std::uint64_t>{0, 1, 2});
}

TEST_CASE("a producer can go at any moment", "[batch_producer]") {
  for (int taken = 0; taken < 24; ++taken) {
    PinnedPool pool(
        {.max_bytes = 8 * 1024});  // Too small for the depth: workers wait for blocks too.
    {
      BatchProducer<Numbers> producer(numbers_layout(16),
                                      Sampler{{.samples = 1000, .batch_size = 16}}, write_numbers,
                                      pool, {.workers = 3, .depth = 16});
      for (int i = 0; i < taken; ++i) producer.next();
    }
    CHECK(pool.stats().bytes_in_use == 0);
  }
}

TEST_CASE("seek goes on at any batch", "[batch_producer]") {
  const int workers = GENERATE(0, 3);
  const Sampler sampler{{.samples = 50, .batch_size = 5, .shuffle = true, .seed = 3}};
  const std::vector<std::uint64_t> all = serial_sample_numbers(sampler, 3);
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(5), sampler, write_numbers, pool,
                                  {.workers = workers, .depth = 4, .epochs = 3});
  for (const std::uint64_t at : {7u, 0u, 29u, 10u, 19u}) {
    producer.seek(at / 10, at % 10);
    CHECK(read_all(producer) ==
          std::vector<std::uint64_t>(all.begin() + static_cast<long>(at * 5), all.end()));
  }
  producer.seek(3, 0);
  CHECK_FALSE(producer.next());
  // Nor is there a batch behind the end, however far.
  constexpr std::uint64_t kFar = UINT64_MAX;
  for (const std::uint64_t epoch : {std::uint64_t{0}, std::uint64_t{1}, kFar / 10, kFar})
    for (const std::uint64_t batch : {std::uint64_t{30}, kFar - 10 * epoch, kFar / 2, kFar}) {
      if (epoch == 0 && batch < 30) continue;
      producer.seek(epoch, batch);
      CHECK_FALSE(producer.next());
    }
}

TEST_CASE("on_ready follows every batch", "[batch_producer]") {
  std::atomic<int> calls{0};
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 40, .batch_size = 4}},
                                  write_numbers, pool,
                                  {.workers = 2, .depth = 10, .on_ready = [&] { ++calls; }});
  CHECK(eventually([&] { return calls == 10; }));
  CHECK(producer.ready());
  CHECK(read_all(producer).size() == 40);
  CHECK(producer.at_end());
}

TEST_CASE("the queue is nothing before anybody looked, and what was seen since",
          "[batch_producer]") {
  constexpr int depth = 3;
  std::atomic<int> made{0};
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 160, .batch_size = 4}},
                                  write_numbers, pool,
                                  {.workers = 1, .depth = depth, .on_ready = [&] { ++made; }});
  CHECK(producer.stats().queued == 0);
  // At each of these takes the queue is full.
  for (int taken = 0; taken + depth <= 40; ++taken) {
    REQUIRE(eventually([&] { return made == taken + depth; }));
    REQUIRE(producer.next());
  }
  CHECK(producer.stats().queued == depth);
}

TEST_CASE("no epochs, no batches and batches that are too large are refused", "[batch_producer]") {
  struct Nothing {
    std::uint64_t batches() const { return 0; }
    void samples(std::uint64_t, std::uint64_t, std::vector<std::uint64_t>&) const {}
  };
  const int workers = GENERATE(0, 2);
  PinnedPool pool;
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               BatchProducer<Numbers>(numbers_layout(4), Nothing{}, write_numbers, pool,
                                      {.workers = workers});
             }),
             Mentions("the sampler has no batch"));
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               BatchProducer<Numbers>(numbers_layout(4), Sampler{{.samples = 10, .batch_size = 5}},
                                      write_numbers, pool, {.workers = workers});
             }),
             Mentions("the sampler has batches of 5 samples, the layout has room for 4"));
  const Sampler sampler{{.samples = 4, .batch_size = 4}};
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               BatchProducer<Numbers>(numbers_layout(4), sampler, write_numbers, pool,
                                      {.workers = workers, .epochs = 0});
             }),
             Mentions("epochs is 0, must be at least 1"));
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               penstock::Prefetcher<Numbers>(numbers_layout(4), sampler, write_numbers,
                                             {.workers = workers, .epochs = 0});
             }),
             Mentions("epochs is 0, must be at least 1"));
}

TEST_CASE("the options of a sampler take its place in a producer", "[batch_producer]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), {.samples = 30, .shuffle = true, .seed = 11},
                                  write_numbers, pool, {.workers = 2, .epochs = 2});
  CHECK(producer.batches() == 8);
  CHECK(read_all(producer) == serial_sample_numbers(penstock::test::shuffled(30, 4), 2));
  const penstock::SamplerOptions options{.samples = 30, .batch_size = 3};
  BatchProducer<Numbers> of_three(numbers_layout(4), options, write_numbers, pool);
  CHECK(of_three.batches() == 10);
}

TEST_CASE("options that make no sense are refused", "[batch_producer]") {
  PinnedPool pool;
  const Sampler sampler{{.samples = 4, .batch_size = 4}};
  CHECK_THROWS_AS(BatchProducer<Numbers>(numbers_layout(4), sampler, write_numbers, pool,
                                         {.workers = GENERATE(-1, 65'537)}),
                  std::invalid_argument);
  CHECK_THROWS_AS(
      BatchProducer<Numbers>(penstock::Layout<Numbers>{4}, sampler, write_numbers, pool),
      std::invalid_argument);
}

TEST_CASE("a depth that makes no sense is refused", "[batch_producer]") {
  PinnedPool pool;
  const Sampler sampler{{.samples = 4, .batch_size = 4}};
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const auto with_depth = [&](std::size_t depth) {
    BatchProducer<Numbers>(numbers_layout(4), sampler, write_numbers, pool, {.depth = depth});
  };
#ifndef __SANITIZE_THREAD__  // So many records take 4 GB there.
  CHECK_NOTHROW(with_depth(kMost));
#endif
  CHECK_THAT(thrown<std::invalid_argument>([&] { with_depth(kMost + 1); }),
             Mentions("must be 0 to 1048576"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { with_depth(~std::size_t{0}); }),
             Mentions("depth is"));
}

/// A pool with room for `blocks` batches of 4, that waits so long.
PinnedPool small_pool(std::size_t blocks, std::chrono::milliseconds timeout) {
  return PinnedPool{{.max_bytes = blocks * BatchProducer<Numbers>::block_bytes(numbers_layout(4)),
                     .timeout = timeout}};
}

/// The next batch. Where the time-out is short, or the machine busy, `next` may say meanwhile that
/// there is no memory: that costs no batch.
std::optional<HostBatch<Numbers>> next_of(BatchProducer<Numbers>& producer) {
  while (true) try {
      return producer.next();
    } catch (const penstock::PoolExhausted&) {
    }
}

TEST_CASE("a consumer that pauses longer than the pool's time-out loses no batch",
          "[batch_producer]") {
  const int workers = GENERATE(1, 3);
  const std::size_t blocks = GENERATE(1u, 2u);
  const auto timeout = GENERATE(0ms, 10ms);
  const bool by_sample = GENERATE(false, true);
  AnySource<Numbers> source = write_numbers;
  if (by_sample)
    source = penstock::per_sample([](const penstock::Sample& sample, Numbers& batch) {
      batch.sample(sample.row) = sample.index;
      for (std::int64_t j = 0; j < penstock::test::kPayload; ++j)
        batch.payload(sample.row, j) = penstock::test::payload_of(sample.index, j);
    });
  PinnedPool pool = small_pool(blocks, timeout);
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 40, .batch_size = 4}},
                                  source, pool, {.workers = workers, .depth = 4});
  std::this_thread::sleep_for(3 * timeout + 10ms);  // All memory is filled, and workers wait.
  for (std::uint64_t number = 0; number < 10; ++number) {
    auto batch = next_of(producer);
    REQUIRE(batch);
    CHECK(batch->ticket().batch == number);
    if (number % 4 == 1) std::this_thread::sleep_for(3 * timeout + 10ms);  // The batch is held.
    if (number % 4 == 2) batch.reset(), std::this_thread::sleep_for(3 * timeout + 10ms);
  }
  CHECK_FALSE(next_of(producer));
  CHECK(producer.skipped() == 0);
}

TEST_CASE("a pool without memory for the batch that a consumer waits for is an error each time",
          "[batch_producer]") {
  const int workers = GENERATE(1, 3);
  const bool of_the_consumer = GENERATE(false, true);  // or somebody else's
  const auto timeout = GENERATE(0ms, 20ms);
  PinnedPool pool = small_pool(1, timeout);
  penstock::PinnedBlock taken;
  if (!of_the_consumer) taken = pool.acquire(1);
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 40, .batch_size = 4}},
                                  write_numbers, pool, {.workers = workers, .depth = 4});
  std::optional<HostBatch<Numbers>> held;
  if (of_the_consumer) held = next_of(producer);
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THAT(thrown<penstock::PoolExhausted>([&] { producer.next(); }),
               Mentions("no block came back"));
    CHECK(std::chrono::steady_clock::now() - begin >= timeout * 9 / 10);
  }
  const std::uint64_t first = held ? 1 : 0;
  held.reset();
  taken.release();
  for (std::uint64_t number = first; number < 10; ++number) {
    const auto batch = next_of(producer);
    REQUIRE(batch);
    CHECK(batch->ticket().batch == number);
  }
  CHECK_FALSE(producer.next());
}

TEST_CASE("the pool's time-out counts from where the consumer waits", "[batch_producer]") {
  constexpr auto kTimeout = 400ms;
  PinnedPool pool = small_pool(1, kTimeout);
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 8, .batch_size = 4}},
                                  write_numbers, pool, {.workers = 1});
  auto held = producer.next();
  REQUIRE(held);
  std::this_thread::sleep_for(kTimeout - kTimeout / 8);  // The worker waits that long already.
  std::thread releaser([&] {
    std::this_thread::sleep_for(kTimeout / 2);
    held.reset();
  });
  CHECK(producer.next()->ticket().batch == 1);
  releaser.join();
}

TEST_CASE("workers that wait for memory end with their producer", "[batch_producer]") {
  PinnedPool pool = small_pool(1, std::chrono::milliseconds::max());
  const penstock::PinnedBlock taken = pool.acquire(1);
  const BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 8, .batch_size = 4}},
                                        write_numbers, pool, {.workers = 3});
  REQUIRE(eventually([&] { return producer.stats().waiting_for_room > 0ns; }));
}

TEST_CASE("a source that stops its producer ends the data; it may not seek", "[batch_producer]") {
  PinnedPool pool;
  std::atomic<BatchProducer<Numbers>*> its{nullptr};
  std::atomic<int> refused{0};
  BatchProducer<Numbers> producer(numbers_layout(4), sequential(400, 4),
                                  [&](const Ticket& ticket, Numbers& batch) {
                                    eventually([&] { return its.load() != nullptr; });
                                    try {
                                      its.load()->seek(0, 0);
                                    } catch (const std::logic_error&) {
                                      ++refused;
                                    }
                                    write_numbers(ticket, batch);
                                    its.load()->stop();
                                  },
                                  pool, {.workers = 2, .depth = 3});
  its = &producer;
  int batches = 0;
  while (producer.next()) ++batches;
  CHECK(batches >= 1);
  CHECK(batches <= 3);
  CHECK(refused == batches);
  its = nullptr;
}

TEST_CASE("after stop, what is ready still comes, and nothing behind it", "[batch_producer]") {
  constexpr std::size_t kDepth = 2;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), sequential(4 * 100, 4), write_numbers, pool,
                                  {.workers = 1, .depth = kDepth});
  REQUIRE(producer.next());
  producer.stop();
  std::size_t left = 0;
  while (producer.next()) ++left;
  CHECK(left <= kDepth);
  CHECK(producer.at_end());
}

TEST_CASE("the depth, where none is given, is that of the source's kind", "[batch_producer]") {
  PinnedPool pool;
  BatchProducer<Numbers> whole(numbers_layout(4), sequential(40, 4), write_numbers, pool,
                               {.workers = 3});
  CHECK(whole.stats().capacity == 5);
  const auto no_row = [](const penstock::Sample&, Numbers&) {};
  BatchProducer<Numbers> rows(numbers_layout(4), sequential(40, 4), penstock::per_sample(no_row),
                              pool, {.workers = 3});
  CHECK(rows.stats().capacity == 4);
}

TEST_CASE("the first batch that is taken is counted as one that was ready", "[batch_producer]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), sequential(40, 4), write_numbers, pool,
                                  {.workers = 1, .depth = 4});
  REQUIRE(producer.next());
  CHECK(producer.stats().queued >= 1);
}
