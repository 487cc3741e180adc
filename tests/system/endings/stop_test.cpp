// SPDX-License-Identifier: Apache-2.0

// Threads that wait for a batch when the pipeline is stopped, or destroyed. Runs emulated, and on a
// GPU.

#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using namespace std::chrono_literals;
using penstock::AnySource;
using penstock::BatchProducer;
using penstock::Lease;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Sample;
using penstock::Sampler;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::NumbersSink;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::Waiter;
using penstock::test::write_numbers;

namespace {

constexpr std::uint64_t kRowsOfOne = 4, kBatchesOfAll = 25;

/// A source of each kind that gives the first `ready` batches, and then waits until it is asked to
/// stop.
AnySource<Numbers> waiting_source(int kind, std::uint64_t ready) {
  const auto wait = [ready](std::uint64_t batch, const std::stop_token& stop) {
    while (batch >= ready && !stop.stop_requested()) std::this_thread::sleep_for(100us);
  };
  if (kind == 0)
    return [wait](const Ticket& ticket, Numbers& batch, const std::stop_token& stop) {
      wait(ticket.batch, stop);
      write_numbers(ticket, batch);
      return true;
    };
  if (kind == 1)
    return penstock::per_sample(
        [wait](const Sample& sample, Numbers& batch, const std::stop_token& stop) {
          wait(sample.batch, stop);
          batch.sample(sample.row) = sample.index;
        });
  return penstock::on_device(
      [wait](const Ticket& ticket, Numbers&, cudaStream_t, const std::stop_token& stop) {
        wait(ticket.batch, stop);
        return true;
      });
}

/// Threads that ask for a batch, each with a stream of its own, and wait for it.
class Waiting {
 public:
  Waiting(Prefetcher<Numbers>& prefetcher, std::size_t threads) : streams_(threads) {
    for (const auto& stream : streams_)
      threads_.emplace_back([this, &prefetcher, &stream, &waiter = waiters_.at(threads_.size())] {
        waiter.enter();
        batches_ += prefetcher.next(stream.get()) ? 1 : 0;
      });
    for (std::size_t i = 0; i < threads; ++i) waiters_.at(i).wait_until_asleep();
  }
  /// How many have got a batch.
  int join() {
    for (std::thread& thread : threads_) thread.join();
    return batches_;
  }

 private:
  std::vector<penstock::Stream> streams_;
  std::array<Waiter, 4> waiters_;
  std::atomic<int> batches_{0};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("a prefetcher can go while threads wait in next, which get empty leases", "[endings]") {
  const int kind = GENERATE(0, 1, 2);
  const std::size_t threads = GENERATE(1u, 4u);
  for (int i = 0; i < 10; ++i) {
    std::optional<Prefetcher<Numbers>> prefetcher(
        std::in_place, numbers_layout(kRowsOfOne),
        sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), waiting_source(kind, 0),
        PrefetcherOptions{.workers = 2, .stall_timeout = 0ms});
    Waiting waiting(*prefetcher, threads);
    prefetcher.reset();
    CHECK(waiting.join() == 0);
  }
}

TEST_CASE("a prefetcher can go while threads wait in next, all slots leased", "[endings]") {
  std::optional<Prefetcher<Numbers>> prefetcher(
      std::in_place, numbers_layout(kRowsOfOne), sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne),
      write_numbers, PrefetcherOptions{.workers = 2, .device_depth = 2, .stall_timeout = 0ms});
  TestStream stream;
  const auto a = prefetcher->next(stream), b = prefetcher->next(stream);
  Waiting waiting(*prefetcher, 3);
  prefetcher.reset();
  CHECK(waiting.join() == 0);
}

TEST_CASE("stop wakes the threads that wait in next, and ends later calls", "[endings]") {
  const int kind = GENERATE(0, 1, 2);
  const std::size_t threads = GENERATE(1u, 4u);
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(kRowsOfOne),
                                 sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne),
                                 waiting_source(kind, 3), {.workers = 2, .stall_timeout = 0ms});
  for (int i = 0; i < 10; ++i) {
    for (std::uint64_t batch = 0; batch < 3; ++batch)
      REQUIRE(prefetcher.next(stream).ticket().batch == batch);
    Waiting waiting(prefetcher, threads);
    prefetcher.stop();
    CHECK(waiting.join() == 0);
    CHECK_FALSE(prefetcher.next(stream));
    auto state = prefetcher.state();
    CHECK(state.batch == 3);
    state.batch = 0;
    prefetcher.restore(state);
  }
}

TEST_CASE("after stop nothing that is staged is delivered, leases stay, restore goes on",
          "[endings]") {
  Gate gate;
  TestStream stream;
  NumbersSink sink(kRowsOfOne, kBatchesOfAll);
  Prefetcher<Numbers> prefetcher(numbers_layout(kRowsOfOne),
                                 sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), write_numbers,
                                 {.workers = 2, .device_depth = 3});
  for (int i = 0; i < 5; ++i) sink.take(prefetcher.next(stream), stream);
  gate.hold(stream);
  auto held = prefetcher.next(stream);
  sink.take(held, stream);
  CHECK(eventually([&] { return prefetcher.stats().copy.batches >= 8; }));  // two are staged
  prefetcher.stop();
  prefetcher.stop();
  for (int i = 0; i < 3; ++i) CHECK_FALSE(prefetcher.next(stream));
  const auto state = prefetcher.state();
  CHECK(state.batch == 6);
  prefetcher.restore(state);
  CHECK(held.ticket().batch == 5);
  gate.open();
  held.release();
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  sink.wait(stream);
  for (std::uint64_t i = 0; i < kBatchesOfAll; ++i)
    CHECK(sink.sample_numbers(i) == std::vector<std::uint64_t>{i * kRowsOfOne, i * kRowsOfOne + 1,
                                                               i * kRowsOfOne + 2,
                                                               i * kRowsOfOne + 3});
}

TEST_CASE("after stop no error is thrown either, and restore brings it back", "[endings]") {
  const int kind = GENERATE(0, 1);
  TestStream stream;
  AnySource<Numbers> source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch == 2) throw std::runtime_error("a bad batch");
    write_numbers(ticket, batch);
  };
  if (kind == 1)
    source = penstock::per_worker(
        []() -> penstock::Source<Numbers> { throw std::runtime_error("no decoder"); });
  Prefetcher<Numbers> prefetcher(numbers_layout(kRowsOfOne),
                                 sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), source,
                                 {.workers = 2, .device_depth = 4});
  const auto start = prefetcher.state();
  // The error is staged at its batch's place; where no worker has a source, all have said so.
  std::this_thread::sleep_for(kind == 0 ? 0ms : 20ms);
  if (kind == 0) CHECK(eventually([&] { return prefetcher.stats().copy.batches >= 3; }));
  prefetcher.stop();
  for (int i = 0; i < 3; ++i) CHECK_FALSE(prefetcher.next(stream));
  prefetcher.restore(start);
  if (kind == 1) {
    CHECK_THROWS_AS(prefetcher.next(stream), penstock::WorkerError);
    return;
  }
  CHECK(prefetcher.next(stream).ticket().batch == 0);
  CHECK(prefetcher.next(stream).ticket().batch == 1);
  CHECK_THROWS_AS(prefetcher.next(stream), penstock::SourceError);
}

TEST_CASE("a transform may stop its prefetcher, and restore goes on where it was", "[endings]") {
  std::atomic<Prefetcher<Numbers>*> its{nullptr};
  std::atomic<bool> stops{true};
  TestStream stream;
  Prefetcher<Numbers> prefetcher(
      numbers_layout(kRowsOfOne), {.samples = kBatchesOfAll * kRowsOfOne}, write_numbers,
      {penstock::Layout<Numbers>()
           .field(&Numbers::sample, {})
           .field(&Numbers::payload, {penstock::test::kPayload}),
       [&](const Ticket& ticket, const Numbers& from, Numbers& to, cudaStream_t copies) {
         // The constructor may call this for the first batches, while `its` is null.
         if (ticket.batch == 4 && stops.exchange(false)) {
           eventually([&] { return its.load() != nullptr; });
           its.load()->stop();
         }
         cudaMemcpyAsync(to.sample.data_handle(), from.sample.data_handle(),
                         from.sample.size() * sizeof(std::uint64_t), cudaMemcpyDeviceToDevice,
                         copies);
         cudaMemcpyAsync(to.payload.data_handle(), from.payload.data_handle(),
                         from.payload.size() * sizeof(std::uint32_t), cudaMemcpyDeviceToDevice,
                         copies);
       }},
      {.workers = 2, .stall_timeout = 0ms});
  its = &prefetcher;
  NumbersSink sink(kRowsOfOne, kBatchesOfAll);
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  CHECK(sink.batches() < kBatchesOfAll);
  prefetcher.restore(prefetcher.state());
  while (auto batch = prefetcher.next(stream)) sink.take(batch, stream);
  sink.wait(stream);
  CHECK(sink.all_sample_numbers() == penstock::test::serial_sample_numbers(
                                         sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), 1));
}

TEST_CASE("a source may stop its prefetcher", "[endings]") {
  std::atomic<Prefetcher<Numbers>*> its{nullptr};
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(kRowsOfOne),
                                 sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   eventually([&] { return its.load() != nullptr; });
                                   if (ticket.batch == 4) its.load()->stop();
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 2, .stall_timeout = 0ms});
  its = &prefetcher;
  std::uint64_t batches = 0;
  while (prefetcher.next(stream)) ++batches;
  CHECK(batches <= 6);  // The other worker may be ahead.
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("stop while workers are parked, and while some wait for each stage", "[endings]") {
  TestStream stream;
  for (int taken = 0; taken < 8; ++taken) {
    PrefetcherOptions options{.workers = 1, .stall_timeout = 0ms};
    options.tune = penstock::Tune{.workers = 4};
    Prefetcher<Numbers> prefetcher(numbers_layout(kRowsOfOne),
                                   sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne),
                                   write_numbers, options);
    for (int i = 0; i < taken; ++i) prefetcher.next(stream);
    prefetcher.stop();
    CHECK_FALSE(prefetcher.next(stream));
  }
}

TEST_CASE("stop beside restore, beside threads in next", "[endings][threads]") {
  Prefetcher<Numbers> prefetcher(numbers_layout(kRowsOfOne),
                                 sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), write_numbers,
                                 {.workers = 2, .epochs = 1'000'000, .stall_timeout = 0ms});
  const auto start = prefetcher.state();
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      const penstock::Stream stream;
      while (!over) taken += bool(prefetcher.next(stream.get()));
    });
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!over) prefetcher.stop();
    });
  for (int i = 0; i < 50; ++i) prefetcher.restore(start);
  over = true;
  for (std::thread& thread : threads) thread.join();
  prefetcher.restore(start);
  const TestStream stream;
  for (std::uint64_t i = 0; i < 2 * kBatchesOfAll; ++i)
    REQUIRE(prefetcher.next(stream).ticket().batch == i % kBatchesOfAll);
}

TEST_CASE("restore does not wait for threads in next, and they are woken after it",
          "[endings][threads]") {
  for (int i = 0; i < 20; ++i) {
    std::optional<Prefetcher<Numbers>> prefetcher(
        std::in_place, numbers_layout(kRowsOfOne),
        sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), waiting_source(0, 1),
        PrefetcherOptions{.workers = 2, .stall_timeout = 0ms});
    TestStream stream;
    const auto lease = prefetcher->next(stream);
    const auto start = prefetcher->state();
    Waiting waiting(*prefetcher, 2);
    prefetcher->restore(start);
    CHECK(prefetcher->stats().consumer.batches >= 1);
    prefetcher.reset();
    CHECK(waiting.join() <= 1);
  }
}

TEST_CASE("threads in next get empty leases at stop, though the source goes on", "[endings]") {
  std::atomic<bool> goes_on{true};
  Prefetcher<Numbers> prefetcher(numbers_layout(kRowsOfOne),
                                 sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne),
                                 [&](const Ticket& ticket, Numbers& batch) {
                                   while (goes_on) std::this_thread::sleep_for(100us);
                                   write_numbers(ticket, batch);
                                 },
                                 {.workers = 1, .stall_timeout = 0ms});
  Waiting waiting(prefetcher, 4);
  prefetcher.stop();
  CHECK(waiting.join() == 0);
  goes_on = false;
}

TEST_CASE("a producer can go while its worker waits for memory, and a thread in next",
          "[endings]") {
  const auto layout = numbers_layout(kRowsOfOne);
  const std::size_t bytes = (BatchProducer<Numbers>::block_bytes(layout) + 255) / 256 * 256;
  penstock::PinnedPool pool({.max_bytes = bytes, .timeout = std::chrono::milliseconds::max()});
  std::optional<BatchProducer<Numbers>> producer(
      std::in_place, layout, sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), write_numbers,
      pool, penstock::ProducerOptions{.workers = 1});
  BatchProducer<Numbers>& taken = *producer;
  const auto held = taken.next();
  REQUIRE(held);
  Waiter waiter;
  bool any = true;
  std::thread waiting([&] {
    waiter.enter();
    any = taken.next().has_value();
  });
  waiter.wait_until_asleep();
  producer.reset();
  waiting.join();
  CHECK_FALSE(any);
}

TEST_CASE("a producer can be stopped, or go, while a thread waits in next", "[endings]") {
  const int kind = GENERATE(0, 1);
  const bool goes = GENERATE(false, true);
  for (int i = 0; i < 10; ++i) {
    penstock::PinnedPool pool;
    std::optional<BatchProducer<Numbers>> producer(
        std::in_place, numbers_layout(kRowsOfOne),
        sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), waiting_source(kind, 0), pool,
        penstock::ProducerOptions{.workers = 2});
    BatchProducer<Numbers>& taken = *producer;  // reset() writes what the optional's -> may read
    Waiter waiter;
    std::thread waiting([&] {
      waiter.enter();
      taken.next();  // Maybe a batch: the source has returned from it when it was asked to stop.
    });
    waiter.wait_until_asleep();
    if (goes)
      producer.reset();
    else
      producer->stop();
    waiting.join();
  }
}

TEST_CASE("a producer that is stopped while it seeks is stopped", "[endings][threads]") {
  penstock::PinnedPool pool;
  std::atomic<bool> returns{false};
  std::atomic<int> sources{0};
  const auto busy = [&](const Ticket& ticket, Numbers& batch) {
    ++sources;
    while (!returns) std::this_thread::yield();
    write_numbers(ticket, batch);
  };
  BatchProducer<Numbers> producer(numbers_layout(kRowsOfOne),
                                  sequential(kBatchesOfAll * kRowsOfOne, kRowsOfOne), busy, pool,
                                  penstock::ProducerOptions{.workers = 2});
  while (sources < 2) std::this_thread::yield();
  Waiter seeks, stops;
  std::thread seeking([&] {
    seeks.enter();
    producer.seek(0, 3);
  });
  seeks.wait_until_asleep();
  std::thread stopping([&] {
    stops.enter();
    producer.stop();
  });
  stops.wait_until_asleep();
  returns = true;
  seeking.join();
  stopping.join();
  const int then = sources;
  while (producer.next()) {
  }
  CHECK(sources == then);
}
