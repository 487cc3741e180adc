// SPDX-License-Identifier: Apache-2.0

// What a prefetcher delivers, in which order, and who may touch which memory when. Runs emulated,
// under every schedule and sanitizer, and on a GPU.

#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

using namespace std::chrono_literals;
using penstock::BatchProducer;
using penstock::Lease;
using penstock::PinnedPool;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Sampler;
using penstock::SamplerOptions;
using penstock::SourceError;
using penstock::State;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::HostLog;
using penstock::test::Mentions;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::NumbersSink;
using penstock::test::serial_sample_numbers;
using penstock::test::shuffled;
using penstock::test::TestStream;
using penstock::test::thrown;
using penstock::test::write_numbers;

static_assert(!std::is_copy_constructible_v<Lease<Numbers>> &&
              std::is_nothrow_move_constructible_v<Lease<Numbers>>);
static_assert(std::is_nothrow_destructible_v<Lease<Numbers>> &&
              std::is_nothrow_destructible_v<Prefetcher<Numbers>>);
static_assert(std::is_default_constructible_v<Lease<Numbers>>);
static_assert(!std::is_convertible_v<Lease<Numbers>, bool>, "explicit, as a unique_ptr's");

namespace {

/// Everything that a prefetcher delivers, in order, through the device.
std::vector<std::uint64_t> deliver(Prefetcher<Numbers>& prefetcher, std::int64_t batch_size,
                                   std::size_t batches, cudaStream_t stream) {
  NumbersSink sink(batch_size, batches);
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  sink.wait(stream);
  return sink.all_sample_numbers();
}

}  // namespace

TEST_CASE("what is delivered is the same for every number of workers and every depth",
          "[prefetcher]") {
  const auto [workers, host_depth, device_depth] = GENERATE(table<int, std::size_t, std::size_t>(
      {{0, 0, 1}, {0, 0, 2}, {1, 1, 1}, {1, 0, 2}, {2, 1, 3}, {3, 8, 2}, {4, 2, 1}, {8, 0, 4}}));
  TestStream stream;
  const Sampler sampler = shuffled(101, 8);
  Prefetcher<Numbers> prefetcher(
      numbers_layout(8), sampler, write_numbers,
      {.workers = workers, .host_depth = host_depth, .device_depth = device_depth, .epochs = 3});
  CHECK(deliver(prefetcher, 8, 3 * 13, stream) == serial_sample_numbers(sampler, 3));
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("unordered, each batch is delivered once", "[prefetcher]") {
  TestStream stream;
  const Sampler sampler = shuffled(101, 8);
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sampler, write_numbers,
                                 {.workers = 4, .epochs = 2, .ordered = false});
  std::vector<std::uint64_t> all = deliver(prefetcher, 8, 2 * 13, stream);
  std::vector<std::uint64_t> expected = serial_sample_numbers(sampler, 2);
  std::sort(all.begin(), all.end());
  std::sort(expected.begin(), expected.end());
  CHECK(all == expected);
  CHECK_THROWS_AS(prefetcher.state(), std::logic_error);
}

TEST_CASE("a lease carries its ticket and its plain values", "[prefetcher]") {
  TestStream stream;
  const Sampler sampler = shuffled(20, 8);
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sampler, write_numbers, {.workers = 2});
  std::vector<std::uint64_t> expected;
  for (std::uint64_t b = 0; auto batch = prefetcher.next(stream); ++b) {
    sampler.samples(0, b, expected);
    CHECK(batch.ticket().epoch == 0);
    CHECK(batch.ticket().batch == b);
    CHECK(std::vector<std::uint64_t>(batch.ticket().samples.begin(),
                                     batch.ticket().samples.end()) == expected);
    CHECK(batch->seed == batch.ticket().seed);
    CHECK((*batch).sample.extent(0) == static_cast<std::int64_t>(expected.size()));
  }
}

TEST_CASE("the copy is issued although the consumer does nothing", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), write_numbers,
                                 {.workers = 1, .host_depth = 4, .device_depth = 3});
  CHECK(eventually([&] { return prefetcher.stats().copy.batches == 3; }));
  auto lease = prefetcher.next(stream);
  CHECK(prefetcher.stats().copy.batches == 3);  // All slots are taken.
  lease.release();
  CHECK(eventually([&] { return prefetcher.stats().copy.batches == 4; }));
}

TEST_CASE("next does not wait for the copy, and the consumer's stream does", "[prefetcher]") {
  Gate gate;
  TestStream stream, other;
  NumbersSink sink(4, 3);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(12, 4), write_numbers,
                                 {.workers = 1, .host_depth = 3, .device_depth = 1});
  {
    auto first = prefetcher.next(other);
    gate.hold(other);
    first.release();  // The slot's next copy has to wait for the gate.
  }
  auto second = prefetcher.next(stream);  // Returns all the same.
  REQUIRE(second);
  sink.take(second, stream);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  gate.open();
  sink.wait(stream);
  CHECK(sink.sample_numbers(0) ==
        std::vector<std::uint64_t>(second.ticket().samples.begin(), second.ticket().samples.end()));
}

TEST_CASE("the consumer does not wait for a later copy from the block that its batch came from",
          "[prefetcher]") {
  Gate gate;
  TestStream held, stream, second;
  NumbersSink sink(4, 1);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(12, 4), write_numbers,
                                 {.workers = 1, .host_depth = 1, .device_depth = 2});
  {
    auto first = prefetcher.next(held);
    gate.hold(held);
    REQUIRE(eventually([&] { return prefetcher.stats().copy.batches == 2; }));
    first.release();  // The third batch has its slot, and the block; its copy waits for the gate.
  }
  REQUIRE(eventually([&] { return prefetcher.stats().copy.batches == 3; }));
  auto batch = prefetcher.next(stream);
  batch.also_used_on(second);
  sink.take(batch, stream);
  CHECK(eventually([&] { return cudaStreamQuery(stream) == cudaSuccess; }));
  CHECK(cudaStreamQuery(second) == cudaSuccess);
  sink.wait(stream);
  CHECK(sink.sample_numbers(0) ==
        std::vector<std::uint64_t>(batch.ticket().samples.begin(), batch.ticket().samples.end()));
  gate.open();
}

TEST_CASE("a slot is not written before every consumer stream is through", "[prefetcher]") {
  const bool on_second = GENERATE(false, true);
  constexpr std::int64_t kPerBatch = 4;
  Gate gate;
  TestStream first, second;
  NumbersSink sink(kPerBatch, 4);
  Prefetcher<Numbers> prefetcher(numbers_layout(kPerBatch), shuffled(16, kPerBatch), write_numbers,
                                 {.workers = 1, .host_depth = 4, .device_depth = 1});
  std::vector<std::uint64_t> expected;
  {
    auto lease = prefetcher.next(first);
    lease.also_used_on(second);
    expected.assign(lease.ticket().samples.begin(), lease.ticket().samples.end());
    const cudaStream_t reader = on_second ? second : first;
    gate.hold(reader);
    sink.take(lease, reader);  // Reads the slot only when the gate opens.
  }
  TestStream third;
  auto next = prefetcher.next(third);  // Same slot: its copy is queued behind the reader.
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(first));
  sink.wait(second);
  CHECK(sink.sample_numbers(0) == expected);
}

TEST_CASE("a lease is tested, moved and released as a unique_ptr is", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), write_numbers, {.workers = 1});
  Lease<Numbers> empty;
  CHECK_FALSE(empty);
  Lease<Numbers> a = prefetcher.next(stream);
  REQUIRE(a);
  Lease<Numbers> b = std::move(a);
  CHECK_FALSE(a);  // NOLINT(bugprone-use-after-move): that is the test
  REQUIRE(b);
  CHECK(b.ticket().batch == 0);
  b = prefetcher.next(stream);
  CHECK(b.ticket().batch == 1);
  b.release();
  CHECK_FALSE(b);
  b.release();
  empty.release();
}

TEST_CASE("an empty lease says so when it is used", "[prefetcher]") {
  const TestStream stream;
  Lease<Numbers> empty;
  const auto said = [](auto use) { return thrown<std::logic_error>(use); };
  CHECK_THAT(said([&] { static_cast<void>((*empty).seed); }), Mentions("holds no batch"));
  CHECK_THAT(said([&] { static_cast<void>(empty->seed); }), Mentions("holds no batch"));
  CHECK_THAT(said([&] { static_cast<void>(empty.ticket()); }), Mentions("holds no batch"));
  CHECK_THAT(said([&] { static_cast<void>(empty.slot()); }), Mentions("holds no batch"));
  CHECK_THAT(said([&] { empty.also_used_on(stream); }), Mentions("holds no batch"));
  empty.release();
}

TEST_CASE("leases use device_depth fixed addresses", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(100, 4), write_numbers,
                                 {.workers = 2, .device_depth = 3, .epochs = 2});
  std::set<std::tuple<std::size_t, const void*, const void*>> places;
  while (auto batch = prefetcher.next(stream))
    places.emplace(batch.slot(), batch->sample.data_handle(), batch->payload.data_handle());
  CHECK(places.size() == 3);
}

TEST_CASE("several leases can be held, and ended in any order, on any thread", "[prefetcher]") {
  TestStream stream;
  NumbersSink sink(4, 25);
  const Sampler sampler = shuffled(100, 4);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers,
                                 {.workers = 2, .device_depth = 4});
  for (;;) {
    Lease<Numbers> a = prefetcher.next(stream);
    Lease<Numbers> b = prefetcher.next(stream);
    Lease<Numbers> c = prefetcher.next(stream);
    for (const auto* lease : {&a, &b, &c})
      if (*lease) sink.take(*lease, stream);
    if (!c) break;
    std::thread([held = std::move(b)]() mutable { held.release(); }).join();
    c.release();
  }
  sink.wait(stream);
  CHECK(sink.all_sample_numbers() == serial_sample_numbers(sampler, 1));
}

TEST_CASE("an exception comes at its batch's place, and the batches after it still come",
          "[prefetcher]") {
  const int workers = GENERATE(0, 1, 3);
  TestStream stream;
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch % 3 == 1) throw std::range_error("bad image");
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), source,
                                 {.workers = workers, .epochs = 2});
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::uint64_t epoch = i / 10, batch = i % 10;
    if (batch % 3 == 1) {
      try {
        prefetcher.next(stream);
        FAIL("the exception was lost");
      } catch (const SourceError& error) {
        CHECK(error.epoch() == epoch);
        CHECK(error.batch() == batch);
        CHECK_THROWS_AS(std::rethrow_if_nested(error), std::range_error);
      }
      CHECK(prefetcher.state().epoch * 10 + prefetcher.state().batch == i + 1);
    } else {
      CHECK(prefetcher.next(stream).ticket().batch == batch);
    }
  }
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("behind an exception the next batch is copied although nobody asks for it",
          "[prefetcher]") {
  TestStream stream;
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch == 0) throw std::range_error("bad");
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), source,
                                 {.workers = 1, .device_depth = 1});
  CHECK_THROWS_AS(prefetcher.next(stream), SourceError);
  CHECK(eventually([&] { return prefetcher.stats().copy.batches == 1; }));
}

TEST_CASE("a run resumes at every position, with other workers and depths", "[prefetcher]") {
  TestStream stream;
  const Sampler sampler = shuffled(30, 4);
  const std::vector<std::uint64_t> all = serial_sample_numbers(sampler, 2);
  for (std::size_t stop = 0; stop <= 16; ++stop) {
    State state;
    std::vector<std::uint64_t> seen;
    {
      NumbersSink sink(4, 16);
      Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers,
                                     {.workers = 2, .host_depth = 6, .epochs = 2});
      for (std::size_t i = 0; i < stop; ++i) sink.take(prefetcher.next(stream), stream);
      sink.wait(stream);
      seen = sink.all_sample_numbers();
      state = prefetcher.state();
    }
    Prefetcher<Numbers> prefetcher(
        numbers_layout(4), sampler, write_numbers,
        {.workers = static_cast<int>(stop % 4), .device_depth = 1 + stop % 3, .epochs = 2});
    prefetcher.restore(State::parse(to_string(state)));
    CHECK(prefetcher.state() == state);
    for (const std::uint64_t sample : deliver(prefetcher, 4, 16, stream)) seen.push_back(sample);
    CHECK(seen == all);
  }
}

TEST_CASE("restore also rewinds a prefetcher in the middle of its run, leases alive",
          "[prefetcher]") {
  TestStream stream;
  const Sampler sampler = shuffled(40, 4);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers,
                                 {.workers = 3, .device_depth = 3});
  const State start = prefetcher.state();
  Lease<Numbers> held = prefetcher.next(stream);
  prefetcher.next(stream);
  prefetcher.restore(start);
  CHECK(held.ticket().batch == 0);
  CHECK(deliver(prefetcher, 4, 10, stream) == serial_sample_numbers(sampler, 1));
}

TEST_CASE("at the edge of an epoch a run goes on with other ranks and batch sizes",
          "[prefetcher]") {
  TestStream stream;
  const auto rank_of = [](int world_size, int rank, std::int64_t batch_size) {
    return Sampler{{.samples = 60,
                    .batch_size = batch_size,
                    .shuffle = true,
                    .seed = 11,
                    .rank = rank,
                    .world_size = world_size}};
  };
  std::vector<std::uint64_t> samples_of_epochs(2 * 60);  // 0: not delivered
  const auto count = [&](const std::vector<std::uint64_t>& samples, std::size_t epoch) {
    for (const std::uint64_t sample : samples) ++samples_of_epochs[epoch * 60 + sample];
  };
  State edge;
  for (int rank = 0; rank < 2; ++rank) {
    Prefetcher<Numbers> prefetcher(numbers_layout(8), rank_of(2, rank, 8), write_numbers,
                                   {.workers = 2, .epochs = 1});
    count(deliver(prefetcher, 8, 4, stream), 0);
    edge = prefetcher.state();
    CHECK(edge.epoch == 1);
    CHECK(edge.batch == 0);
  }
  for (int rank = 0; rank < 3; ++rank) {
    Prefetcher<Numbers> prefetcher(numbers_layout(5), rank_of(3, rank, 5), write_numbers,
                                   {.workers = 1, .device_depth = 3, .epochs = 2});
    prefetcher.restore(edge);
    CHECK(prefetcher.state().epoch == 1);
    CHECK(prefetcher.state().world_size == 3);
    count(deliver(prefetcher, 5, 4, stream), 1);
  }
  CHECK(samples_of_epochs == std::vector<std::uint64_t>(2 * 60, 1));
}

TEST_CASE("within an epoch a run goes on with other ranks and batch sizes, twice", "[prefetcher]") {
  TestStream stream;
  std::vector<std::uint64_t> delivered(2 * 61);
  State saved;
  // `batches` of each rank; 0: to the end of the second epoch.
  const auto run = [&](int world_size, std::int64_t batch_size, std::size_t batches) {
    State behind;
    for (int rank = 0; rank < world_size; ++rank) {
      const Sampler sampler({.samples = 61,
                             .batch_size = batch_size,
                             .shuffle = true,
                             .seed = 11,
                             .rank = rank,
                             .world_size = world_size},
                            saved);
      Prefetcher<Numbers> prefetcher(numbers_layout(batch_size), sampler, write_numbers,
                                     {.workers = 2, .epochs = 2});
      CHECK(prefetcher.state() == sampler.start());
      for (std::size_t taken = 0; batches == 0 || taken < batches; ++taken) {
        const Lease<Numbers> batch = prefetcher.next(stream);
        if (!batch) break;
        for (const std::uint64_t sample : batch.ticket().samples)
          ++delivered[batch.ticket().epoch * 61 + sample];
      }
      behind = prefetcher.state();
    }
    saved = behind;
  };
  saved = Sampler({.samples = 61, .batch_size = 4, .shuffle = true, .seed = 11}).start();
  run(3, 4, 2);
  CHECK(saved.batch == 2);
  run(2, 5, 1);
  CHECK(saved.part_samples == 24);
  CHECK(saved.epoch == 0);
  run(1, 8, 0);
  CHECK(saved.epoch == 2);
  CHECK(delivered == std::vector<std::uint64_t>(2 * 61, 1));
}

TEST_CASE("the options of a sampler take its place, with the layout's batch size", "[prefetcher]") {
  TestStream stream;
  SamplerOptions options{.samples = 53, .shuffle = true, .seed = 11};
  const auto run = [&](auto&& given) {
    Prefetcher<Numbers> prefetcher(numbers_layout(8), std::forward<decltype(given)>(given),
                                   write_numbers, {.workers = 2, .epochs = 2});
    return deliver(prefetcher, 8, 22, stream);
  };
  const auto expected = serial_sample_numbers(shuffled(53, 8), 2);
  CHECK(run(options) == expected);
  CHECK(run(std::as_const(options)) == expected);
  CHECK(run(SamplerOptions(options)) == expected);
  CHECK(options.batch_size == 0);
  Prefetcher<Numbers> in_place(numbers_layout(8), {.samples = 53, .shuffle = true, .seed = 11},
                               write_numbers, {.workers = 2, .epochs = 2});
  CHECK(deliver(in_place, 8, 14, stream) == expected);

  options.batch_size = 5;  // It may be less than the layout's.
  CHECK(run(options) == serial_sample_numbers(shuffled(53, 5), 2));
  options.batch_size = 9;
  CHECK_THAT(thrown<std::invalid_argument>([&] { run(options); }),
             Mentions("batches of 9 samples, the layout has room for 8"));
  options.batch_size = -1;
  CHECK_THAT(thrown<std::invalid_argument>([&] { run(options); }),
             Mentions("batch_size is -1, must be at least 1"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { run(SamplerOptions{}); }),
             Mentions("samples is 0"));
}

TEST_CASE("a layout without a batch size is refused where there is no transform", "[prefetcher]") {
  const auto layout = penstock::Layout<Numbers>()
                          .field(&Numbers::sample, {})
                          .field(&Numbers::payload, {penstock::test::kPayload});
  PinnedPool pool;
  const auto check_refusal = [](auto call) {
    CHECK_THAT(thrown<std::invalid_argument>(call),
               Mentions("no batch size") && Mentions("write penstock::Layout<Batch>{256}"));
  };
  check_refusal([&] { Prefetcher<Numbers>(layout, {.samples = 9}, write_numbers); });
  check_refusal([&] { Prefetcher<Numbers>(layout, shuffled(9, 4), write_numbers); });
  check_refusal([&] { BatchProducer<Numbers>(layout, {.samples = 9}, write_numbers, pool); });
  check_refusal([&] { BatchProducer<Numbers>(layout, shuffled(9, 4), write_numbers, pool); });
  check_refusal([&] { BatchProducer<Numbers>::block_bytes(layout); });
}

TEST_CASE("a state behind the end of the run is refused, with what epochs counts", "[prefetcher]") {
  TestStream stream;
  const SamplerOptions options{.samples = 80, .batch_size = 8};
  const std::uint64_t epochs = GENERATE(1u, 3u);
  const auto check_refusal = [&](auto call) {
    CHECK_THAT(thrown<std::invalid_argument>(call),
               Mentions("behind the end of the run") &&
                   Mentions("epochs is " + std::to_string(epochs)) && Mentions("from epoch 0 on") &&
                   Mentions("must be at least 4"));
  };
  State state = Sampler(options).start();
  state.epoch = 3, state.batch = 2;
  Prefetcher<Numbers> prefetcher(numbers_layout(8), Sampler(options), write_numbers,
                                 {.workers = 1, .epochs = epochs});
  prefetcher.next(stream);
  check_refusal([&] { prefetcher.restore(state); });
  CHECK(prefetcher.state().batch == 1);  // Nothing has changed.
  CHECK(deliver(prefetcher, 8, 10 * epochs, stream).size() == 80 * epochs - 8);

  const Sampler rest(options, state);
  check_refusal(
      [&] { Prefetcher<Numbers>(numbers_layout(8), rest, write_numbers, {.epochs = epochs}); });
  PinnedPool pool;
  check_refusal([&] {
    BatchProducer<Numbers>(numbers_layout(8), rest, write_numbers, pool, {.epochs = epochs});
  });

  Prefetcher<Numbers> resumed(numbers_layout(8), rest, write_numbers, {.epochs = 4});
  CHECK(deliver(resumed, 8, 8, stream).size() == 64);
}

TEST_CASE("a run that has finished is restored, and is at its end", "[prefetcher]") {
  TestStream stream;
  const SamplerOptions options{.samples = 80, .batch_size = 8};
  Prefetcher<Numbers> first(numbers_layout(8), Sampler(options), write_numbers, {.epochs = 2});
  deliver(first, 8, 20, stream);
  const State end = first.state();
  CHECK(end.epoch == 2);
  Prefetcher<Numbers> again(numbers_layout(8), Sampler(options), write_numbers, {.epochs = 2});
  again.restore(end);
  CHECK_FALSE(again.next(stream));
  CHECK(again.state() == end);
  Prefetcher<Numbers> rest(numbers_layout(8), Sampler(options, end), write_numbers, {.epochs = 2});
  CHECK_FALSE(rest.next(stream));
  Prefetcher<Numbers> longer(numbers_layout(8), Sampler(options), write_numbers, {.epochs = 3});
  longer.restore(end);
  CHECK(deliver(longer, 8, 10, stream).size() == 80);
}

TEST_CASE("a state that does not fit is refused, and the run goes on", "[prefetcher]") {
  TestStream stream;
  const Sampler sampler = shuffled(40, 4);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers, {.workers = 1});
  prefetcher.next(stream);
  const State state = prefetcher.state();
  for (std::uint64_t State::*number :
       {&State::seed, &State::samples, &State::order, &State::batches, &State::batch_size,
        &State::world_size, &State::part_samples}) {
    State other = state;
    ++(other.*number);
    CHECK_THROWS_AS(prefetcher.restore(other), std::invalid_argument);
  }
  State beyond = state;
  beyond.batch = beyond.batches;
  CHECK_THROWS_AS(prefetcher.restore(beyond), std::invalid_argument);
  CHECK(prefetcher.state() == state);
  CHECK(deliver(prefetcher, 4, 9, stream).size() == 36);
}

TEST_CASE("a pipeline of unknown length ends where the source says so", "[prefetcher]") {
  const int workers = GENERATE(0, 1, 3);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), penstock::Unbounded(4),
                                 [](const Ticket& ticket, Numbers& batch) {
                                   write_numbers(ticket, batch);
                                   return ticket.batch < 7;
                                 },
                                 {.workers = workers, .device_depth = 1});
  CHECK(deliver(prefetcher, 4, 7, stream).size() == 28);
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("the end needs no free slot", "[prefetcher]") {
  const int workers = GENERATE(1, 2);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(8, 4), write_numbers,
                                 {.workers = workers, .device_depth = 2, .stall_timeout = 20s});
  auto a = prefetcher.next(stream);
  auto b = prefetcher.next(stream);
  CHECK(b);
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("next waits for a lease that ends on another thread", "[prefetcher]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), shuffled(40, 4), write_numbers,
                                 {.workers = 1, .device_depth = 1});
  auto held = prefetcher.next(stream);
  std::thread ends([&] { held.release(); });
  CHECK(prefetcher.next(stream).ticket().batch == 1);
  ends.join();
}

TEST_CASE("two prefetchers live side by side, nested", "[prefetcher]") {
  TestStream stream;
  const Sampler outer_sampler = shuffled(20, 4), inner_sampler = shuffled(12, 4);
  NumbersSink outer_sink(4, 5), inner_sink(4, 15);
  Prefetcher<Numbers> outer(numbers_layout(4), outer_sampler, write_numbers, {.workers = 2});
  while (auto batch = outer.next(stream)) {
    outer_sink.take(batch, stream);
    Prefetcher<Numbers> inner(numbers_layout(4), inner_sampler, write_numbers, {.workers = 1});
    while (auto inner_batch = inner.next(stream)) inner_sink.take(inner_batch, stream);
  }
  outer_sink.wait(stream);
  inner_sink.wait(stream);
  CHECK(outer_sink.all_sample_numbers() == serial_sample_numbers(outer_sampler, 1));
  CHECK(inner_sink.batches() == 15);
}

TEST_CASE("any stream can consume: the legacy default, the per-thread default, a blocking one",
          "[prefetcher]") {
  const std::size_t which = GENERATE(0u, 1u, 2u, 3u);
  TestStream blocking(cudaStreamDefault);
  const cudaStream_t stream =
      std::array<cudaStream_t, 4>{nullptr, cudaStreamLegacy, cudaStreamPerThread, blocking}[which];
  const Sampler sampler = shuffled(50, 4);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers, {.workers = 2});
  CHECK(deliver(prefetcher, 4, 13, stream) == serial_sample_numbers(sampler, 1));
}

TEST_CASE("pipelines run beside a stream capture on another thread", "[prefetcher]") {
  const auto mode = GENERATE(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal);
  TestStream capturing, stream;
  HostLog log;
  const Sampler sampler = shuffled(400, 4);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers,
                                 {.workers = 2, .host_depth = 2});
  NumbersSink sink(4, 100);
  // This thread captures, and is itself the consumer: nothing that the pipeline does, here or on
  // its workers, may break the capture or be refused because of it.
  REQUIRE_CUDA(cudaStreamBeginCapture(capturing, mode));
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  log.enqueue(capturing, 1);
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamEndCapture(capturing, &graph));
  CHECK(graph != nullptr);
  sink.wait(stream);
  CHECK(sink.all_sample_numbers() == serial_sample_numbers(sampler, 1));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

TEST_CASE("each device has its own pipeline", "[prefetcher][devices]") {
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 2) return;  // prefetcher_emulated_test runs this with two.
  const Sampler sampler = shuffled(60, 4);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int device = 0; device < 2; ++device)
    threads.emplace_back([&, device] {
      cudaSetDevice(device);
      const penstock::Stream stream;
      Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, write_numbers, {.workers = 2});
      std::uint64_t batches = 0;
      while (auto batch = prefetcher.next(stream.get())) {
        cudaPointerAttributes attributes{};
        cudaPointerGetAttributes(&attributes, batch->sample.data_handle());
        batches += attributes.device == device;
      }
      right += batches == 15;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 2);
}

TEST_CASE("options that make no sense, and memory beyond the cap, are refused with the numbers",
          "[prefetcher]") {
  const auto make = [](PrefetcherOptions options) {
    Prefetcher<Numbers>(numbers_layout(4), shuffled(40, 4), write_numbers, options);
  };
  CHECK_THROWS_AS(make({.workers = -1}), std::invalid_argument);
  CHECK_THROWS_WITH(make({.workers = 65'537}), Mentions("workers is 65537, must be 1 to 65536"));
  CHECK_THROWS_WITH(make({.tune = penstock::Tune{.workers = 65'537}}),
                    Mentions("Tune::workers is 65537, must be 1 to 65536"));
  CHECK_THROWS_AS(make({.device_depth = 0}), std::invalid_argument);
  CHECK_THROWS_WITH(make({.host_depth = ~std::size_t{0}}), Mentions("must be 0 to 1048576"));
  CHECK_THROWS_WITH(make({.device_depth = ~std::size_t{0}}), Mentions("must be 1 to 1048576"));
  CHECK_THROWS_WITH(make({.tune = penstock::Tune{.device_slots = ~std::size_t{0}}}),
                    Mentions("must be 0 to 1048576"));
  CHECK_THROWS_AS(make({.host_depth = 100, .max_host_bytes = 10'000}), penstock::PoolExhausted);
  CHECK_THROWS_WITH(make({.host_depth = 100, .max_host_bytes = 10'000}),
                    penstock::test::Mentions("max_host_bytes"));
}

TEST_CASE("memory up to the cap is taken, to the last byte", "[prefetcher]") {
  const std::size_t block = numbers_layout(4).bytes();
  const auto make = [&](std::size_t cap) {
    Prefetcher<Numbers>(numbers_layout(4), shuffled(40, 4), write_numbers,
                        {.workers = 1, .host_depth = 3, .max_host_bytes = cap});
  };
  CHECK_NOTHROW(make(3 * block));
  CHECK_THROWS_AS(make(3 * block - 1), penstock::PoolExhausted);
}
