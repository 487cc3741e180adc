// SPDX-License-Identifier: Apache-2.0

#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/read_ahead.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

namespace penstock {
namespace {

using test::eventually;
using test::Numbers;
using test::numbers_layout;
using test::sequential;
using test::shuffled;
using test::TestStream;
using test::write_numbers;

/// What was announced, and which batches the source was asked for, one behind the other.
class Log {
 public:
  struct Event {
    bool is_announced;
    std::vector<std::uint64_t> samples;
  };

  ReadAhead read_ahead(std::uint64_t batches) {
    return {[this](std::span<const std::uint64_t> samples) { note(true, samples); }, batches};
  }
  void note(bool is_announced, std::span<const std::uint64_t> samples) {
    const std::lock_guard lock(mutex_);
    events_.push_back({is_announced, {samples.begin(), samples.end()}});
  }
  std::vector<Event> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  std::vector<std::vector<std::uint64_t>> announced() const {
    std::vector<std::vector<std::uint64_t>> all;
    for (const Event& event : events())
      if (event.is_announced) all.push_back(event.samples);
    return all;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

/// The samples of the batches first ... end - 1, over all epochs.
std::vector<std::vector<std::uint64_t>> batches_of(const Sampler& sampler, std::uint64_t first,
                                                   std::uint64_t end) {
  std::vector<std::vector<std::uint64_t>> all(first < end ? end - first : 0);
  for (std::uint64_t i = first; i < end; ++i)
    sampler.samples(i / sampler.batches(), i % sampler.batches(), all[i - first]);
  return all;
}

template <class Producer>
std::uint64_t drain(Producer& producer) {
  std::uint64_t batches = 0;
  while (producer.next()) ++batches;
  return batches;
}

TEST_CASE("each batch is announced so many batches ahead, before its own predecessor is filled",
          "[read_ahead]") {
  const std::uint64_t ahead = GENERATE(1u, 3u, 9u, 10u, 29u, 100u);
  const Sampler sampler = shuffled(50, 5);
  constexpr std::uint64_t kEpoch = 10, kAll = 3 * kEpoch;
  Log log;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(5), sampler,
                                  [&](const Ticket& ticket, Numbers& batch) {
                                    log.note(false, ticket.samples);
                                    write_numbers(ticket, batch);
                                  },
                                  pool,
                                  {.workers = 1, .epochs = 3, .read_ahead = log.read_ahead(ahead)});
  CHECK(drain(producer) == kAll);
  CHECK(log.announced() == batches_of(sampler, 1, kAll));
  std::uint64_t announced = 1, filled = 0, wrong = 0;  // the first one needs no announcement
  for (const Log::Event& event : log.events()) {
    if (event.is_announced) {
      ++announced;
      continue;
    }
    wrong += announced == std::min(kAll, filled + std::min(ahead, kEpoch) + 1) ? 0 : 1;
    ++filled;
  }
  CHECK(wrong == 0);
}

TEST_CASE("many workers announce each batch once and in order", "[read_ahead]") {
  const bool by_sample = GENERATE(false, true), ordered = GENERATE(false, true);
  const Sampler sampler = shuffled(400, 4);
  Log log;
  PinnedPool pool;
  const ProducerOptions options{
      .workers = 6, .epochs = 3, .ordered = ordered, .read_ahead = log.read_ahead(7)};
  const auto row = [](const Sample& sample, Numbers& batch) {
    batch.sample(sample.row) = sample.index;
  };
  AnySource<Numbers> source = write_numbers;
  if (by_sample) source = per_sample(row);
  BatchProducer<Numbers> producer(numbers_layout(4), sampler, source, pool, options);
  CHECK(drain(producer) == 300);
  CHECK(log.announced() == batches_of(sampler, 1, 300));
}

TEST_CASE("after seek and restore, what comes behind that place is announced", "[read_ahead]") {
  const int workers = GENERATE(1, 3);
  const Sampler sampler = shuffled(50, 5);
  Log log;
  SECTION("BatchProducer") {
    PinnedPool pool;
    BatchProducer<Numbers> producer(
        numbers_layout(5), sampler, write_numbers, pool,
        {.workers = workers, .epochs = 2, .read_ahead = log.read_ahead(4)});
    for (const std::uint64_t at : {7u, 0u, 18u, 19u, 20u}) {
      producer.stop();
      log.clear();
      producer.seek(at / 10, at % 10);
      CHECK(drain(producer) == 20 - at);
      producer.stop();
      CHECK(log.announced() == batches_of(sampler, at + 1, 20));
    }
  }
  SECTION("Prefetcher") {
    const TestStream stream;
    const PrefetcherOptions options{
        .workers = workers, .epochs = 2, .read_ahead = log.read_ahead(4)};
    State state;
    {
      Prefetcher<Numbers> prefetcher(numbers_layout(5), sampler, write_numbers, options);
      for (int i = 0; i < 8; ++i) REQUIRE(prefetcher.next(stream));
      state = prefetcher.state();
    }
    CHECK(log.announced().front() == batches_of(sampler, 1, 2).front());
    Prefetcher<Numbers> prefetcher(numbers_layout(5), sampler, write_numbers, options);
    REQUIRE(prefetcher.next(stream));
    prefetcher.restore(state);
    int left = 0;
    while (prefetcher.next(stream)) ++left;
    CHECK(left == 12);
    const auto expected = batches_of(sampler, 9, 20), announced = log.announced();
    REQUIRE(announced.size() > expected.size());  // Those of before the restore, too.
    CHECK(std::equal(expected.rbegin(), expected.rend(), announced.rbegin()));
  }
}

TEST_CASE("batches and samples that fail do not change what is announced", "[read_ahead]") {
  const bool by_sample = GENERATE(false, true);
  const Sampler sampler = sequential(60, 3);
  Log log;
  PinnedPool pool;
  AnySource<Numbers> source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch % 3 == 1) throw std::runtime_error("broken");
    write_numbers(ticket, batch);
  };
  if (by_sample)
    source = per_sample([](const Sample& sample, Numbers& batch) {
      if (sample.batch % 3 == 1) throw std::runtime_error("broken");
      batch.sample(sample.row) = sample.index;
    });
  BatchProducer<Numbers> producer(
      numbers_layout(3), sampler, source, pool,
      {.workers = 2, .on_failure = FailurePolicy::skip(1000), .read_ahead = log.read_ahead(2)});
  CHECK(drain(producer) == 13);
  producer.stop();
  CHECK(log.announced() == batches_of(sampler, 1, 20));
}

TEST_CASE("what a sampler or will_need throws is ignored", "[read_ahead]") {
  struct Moody {
    std::uint64_t batches() const { return 10; }
    void samples(std::uint64_t, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
      if (batch == 4) throw std::runtime_error("no such batch");
      out = {batch};
    }
  };
  std::vector<std::uint64_t> announced;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(1), Moody{}, write_numbers, pool,
                                  {.workers = 1,
                                   .on_failure = FailurePolicy::skip(),
                                   .read_ahead = {[&](std::span<const std::uint64_t> samples) {
                                                    announced.push_back(samples.front());
                                                    throw std::runtime_error("no such storage");
                                                  },
                                                  3}});
  CHECK(drain(producer) == 9);
  producer.stop();
  CHECK(announced == std::vector<std::uint64_t>{1, 2, 3, 5, 6, 7, 8, 9});
}

TEST_CASE("a worker that announces holds up no other one", "[read_ahead]") {
  const bool by_sample = GENERATE(false, true);
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  std::atomic<int> calls{0};
  const auto wait = [&](std::span<const std::uint64_t>) {
    ++calls;
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open; });
  };
  PinnedPool pool;
  AnySource<Numbers> source = write_numbers;
  if (by_sample)
    source = per_sample(
        [](const Sample& sample, Numbers& batch) { batch.sample(sample.row) = sample.index; });
  BatchProducer<Numbers> producer(
      numbers_layout(2), sequential(20, 2), source, pool,
      {.workers = 2, .depth = 10, .ordered = false, .read_ahead = {wait, 1}});
  for (int i = 0; i < 9; ++i) REQUIRE(producer.next());  // All but the one whose worker waits.
  CHECK(calls == 1);
  {
    const std::lock_guard lock(mutex);
    open = true;
  }
  changed.notify_all();
  CHECK(producer.next());
  CHECK_FALSE(producer.next());
  CHECK(calls == 9);  // What the others left to it was announced too.
}

TEST_CASE("\"everything\" is an epoch, of however many", "[read_ahead]") {
  const bool by_sample = GENERATE(false, true);
  constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();
  const TestStream stream;
  std::atomic<std::uint64_t> announced{0};
  AnySource<Numbers> source = write_numbers;
  if (by_sample)
    source = per_sample(
        [](const Sample& sample, Numbers& batch) { batch.sample(sample.row) = sample.index; });
  {
    Prefetcher<Numbers> prefetcher(
        numbers_layout(8), sequential(80, 8), source,
        {.workers = 2,
         .epochs = kEver,
         .read_ahead = {
             [&](std::span<const std::uint64_t> samples) { announced += samples.size(); }, kEver}});
    for (int i = 0; i < 25; ++i) REQUIRE(prefetcher.next(stream));
  }
  CHECK(announced >= 8 * (24 + 10));
  CHECK(announced <= 8 * (24 + 10 + 8));  // What is filled ahead has its epoch behind it, too.
}

TEST_CASE("everything of an epoch without an end is refused", "[read_ahead]") {
  const auto make = [](std::uint64_t ahead) {
    PinnedPool pool;
    const BatchProducer<Numbers> producer(
        numbers_layout(4), Unbounded::indexed(4), write_numbers, pool,
        {.workers = 1, .read_ahead = {[](std::span<const std::uint64_t>) {}, ahead}});
  };
  CHECK_THROWS_AS(make(std::numeric_limits<std::uint64_t>::max()), std::invalid_argument);
  CHECK_THROWS_AS(make(std::uint64_t{1} << 63), std::invalid_argument);
  CHECK_NOTHROW(make(8));
}

TEST_CASE("a producer that goes does not announce the rest", "[read_ahead]") {
  constexpr std::uint64_t kSamples = std::uint64_t{1} << 60;
  std::atomic<std::uint64_t> calls{0};
  PinnedPool pool;
  {
    BatchProducer<Numbers> producer(
        numbers_layout(2), sequential(kSamples, 2), write_numbers, pool,
        {.workers = 2,
         .read_ahead = {[&](std::span<const std::uint64_t>) { ++calls; },
                        std::numeric_limits<std::uint64_t>::max()}});
    CHECK(eventually([&] { return calls > 1000; }));
  }
  CHECK(calls < kSamples / 2);
}

TEST_CASE("announcing allocates nothing", "[read_ahead]") {
  constexpr std::size_t kAhead = 500;  // Nothing else happens between the first ones.
  std::vector<std::uint64_t> counts;
  counts.reserve(1000);
  PinnedPool pool;
  const auto count = [&](std::span<const std::uint64_t>) {
    counts.push_back(test::allocations_of_this_thread());
  };
  BatchProducer<Numbers> producer(numbers_layout(8), shuffled(8000, 8), write_numbers, pool,
                                  {.workers = 1, .read_ahead = {count, kAhead}});
  CHECK(drain(producer) == 1000);
  producer.stop();
  REQUIRE(counts.size() == 999);
  CHECK(counts[kAhead - 1] == counts[0]);
}

TEST_CASE("nothing is announced without a function or a distance", "[read_ahead]") {
  Log log;
  PinnedPool pool;
  for (const ReadAhead& read_ahead : {log.read_ahead(0), ReadAhead{{}, 5}, ReadAhead{}}) {
    BatchProducer<Numbers> producer(numbers_layout(2), sequential(20, 2), write_numbers, pool,
                                    {.workers = 2, .read_ahead = read_ahead});
    CHECK(drain(producer) == 10);
  }
  CHECK(log.announced().empty());
}

TEST_CASE("will_need_by gets the time at which each batch will be begun, once that is known",
          "[read_ahead]") {
  using Time = std::chrono::steady_clock::time_point;
  const Sampler sampler = sequential(200, 2);
  constexpr std::uint64_t kAhead = 3;
  Log log;
  std::vector<Time> due;
  PinnedPool pool;
  ReadAhead read_ahead = log.read_ahead(kAhead);
  std::atomic<int> without_time{0};
  read_ahead.will_need = [&](std::span<const std::uint64_t>) { ++without_time; };
  read_ahead.will_need_by = [&](std::span<const std::uint64_t> samples, Time when) {
    log.note(true, samples);
    due.push_back(when);
  };
  BatchProducer<Numbers> producer(numbers_layout(2), sampler, write_numbers, pool,
                                  {.workers = 1, .read_ahead = read_ahead});
  for (const std::uint64_t first : {0u, 40u}) {
    producer.stop();
    due.clear();
    log.clear();
    const Time start = std::chrono::steady_clock::now();
    producer.seek(0, first);
    CHECK(drain(producer) == 100 - first);
    producer.stop();
    CHECK(log.announced() == batches_of(sampler, first + 1, 100));
    // When batch 16 is begun, there are 16 times between two of them.
    const std::size_t unknown = 15 + kAhead;
    REQUIRE(due.size() == 99 - first);
    for (std::size_t i = 0; i < due.size(); ++i) CHECK((due[i] == Time()) == (i < unknown));
    CHECK(*std::min_element(due.begin() + unknown, due.end()) > start);
    CHECK(due.back() < std::chrono::steady_clock::now() + std::chrono::hours(1));
  }
  CHECK(without_time == 0);
}

TEST_CASE("will_need_by alone is enough", "[read_ahead]") {
  std::atomic<int> calls{0};
  PinnedPool pool;
  BatchProducer<Numbers> producer(
      numbers_layout(2), sequential(20, 2), write_numbers, pool,
      {.workers = 2, .read_ahead = {.batches = 2, .will_need_by = [&](auto, auto) { ++calls; }}});
  CHECK(drain(producer) == 10);
  producer.stop();
  CHECK(calls == 9);
}

struct Storage {
  void will_need(std::span<const std::uint64_t> samples) const {
    for (const std::uint64_t sample : samples) sum += sample;
  }
  mutable std::atomic<std::uint64_t> sum{0};
};

template <class T>
concept CanBeRead = requires(T&& storage) {
  read_ahead(std::forward<T>(storage), 3);
};
/// Takes the time, too.
struct TimedStorage : Storage {
  using Storage::will_need;
  void will_need(std::span<const std::uint64_t> samples,
                 std::chrono::steady_clock::time_point) const {
    timed += samples.size();
  }
  mutable std::atomic<std::uint64_t> timed{0};
};
static_assert(CanBeRead<Storage&> && CanBeRead<const Storage&>);
static_assert(!CanBeRead<Storage> && !CanBeRead<int&>);  // which would be gone, or has no will_need

TEST_CASE("read_ahead announces to a store", "[read_ahead]") {
  const Storage storage;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(10), sequential(100, 10), write_numbers, pool,
                                  {.workers = 2, .read_ahead = read_ahead(storage, 3)});
  CHECK(drain(producer) == 10);
  producer.stop();
  CHECK(storage.sum == 99 * 100 / 2 - 9 * 10 / 2);  // all but those of the first batch
}

TEST_CASE("read_ahead tells a store the time, if it takes one", "[read_ahead]") {
  const TimedStorage storage;
  const ReadAhead ahead = read_ahead(storage, 3);
  CHECK(ahead.batches == 3);
  CHECK_FALSE(read_ahead(static_cast<const Storage&>(storage), 3).will_need_by);
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(10), sequential(100, 10), write_numbers, pool,
                                  {.workers = 2, .read_ahead = ahead});
  CHECK(drain(producer) == 10);
  producer.stop();
  CHECK(storage.timed == 90);
  CHECK(storage.sum == 0);
  ahead.will_need(std::vector<std::uint64_t>{5});  // for who does not know the time
  CHECK(storage.sum == 5);
}

}  // namespace
}  // namespace penstock
