// SPDX-License-Identifier: Apache-2.0

// The source and the sampler of a BatchProducer: what they may be and do, and what comes of it.

#include <penstock/batch_producer.hpp>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

using penstock::BatchProducer;
using penstock::PinnedPool;
using penstock::Sampler;
using penstock::SourceError;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Mentions;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::read_all;
using penstock::test::read_numbers;
using penstock::test::serial_sample_numbers;
using penstock::test::write_numbers;

TEST_CASE("each worker owns a copy of the source", "[batch_producer]") {
  struct Counting {
    std::shared_ptr<std::atomic<int>> copies;
    int own = 0;  // not atomic: a race would show under ThreadSanitizer
    explicit Counting(std::shared_ptr<std::atomic<int>> c) : copies(std::move(c)) {}
    Counting(const Counting& other) : copies(other.copies), own(0) { ++*copies; }
    void operator()(const Ticket& ticket, Numbers& batch) {
      // Each worker stays in its first batch until all have one.
      if (++own == 1) eventually([&] { return *copies >= 4; });
      write_numbers(ticket, batch);
    }
  };
  auto copies = std::make_shared<std::atomic<int>>(0);
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(1), Sampler{{.samples = 200, .batch_size = 1}},
                                  Counting(copies), pool, {.workers = 4, .depth = 8});
  read_all(producer);
  CHECK(*copies >= 4);
}

TEST_CASE("an exception comes at its batch's place, with the original nested", "[batch_producer]") {
  const int workers = GENERATE(0, 1, 3);
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.epoch == 1 && ticket.batch == 2) throw std::range_error("bad image");
    if (ticket.epoch == 1 && ticket.batch == 3) throw 42;  // NOLINT: not a std::exception
    write_numbers(ticket, batch);
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 20, .batch_size = 4}},
                                  source, pool, {.workers = workers, .depth = 4, .epochs = 2});
  for (int i = 0; i < 7; ++i) REQUIRE(producer.next());
  try {
    producer.next();
    FAIL("the exception was lost");
  } catch (const SourceError& error) {
    CHECK(error.epoch() == 1);
    CHECK(error.batch() == 2);
    CHECK(std::string(error.what()).find("bad image") != std::string::npos);
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::range_error);
  }
  try {
    producer.next();
    FAIL("the exception was lost");
  } catch (const SourceError& error) {
    CHECK(error.batch() == 3);
    CHECK_THROWS_AS(std::rethrow_if_nested(error), int);
  }
  CHECK(producer.next()->ticket().batch == 4);
  CHECK_FALSE(producer.next());
}

TEST_CASE("a source that throws at every batch throws at every next", "[batch_producer]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Sampler{{.samples = 40, .batch_size = 4}},
                                  [](const Ticket&, Numbers&) { throw std::runtime_error("no"); },
                                  pool, {.workers = 3, .depth = 2});
  for (std::uint64_t i = 0; i < 10; ++i) CHECK_THROWS_AS(producer.next(), SourceError);
  CHECK_FALSE(producer.next());
  CHECK(pool.stats().bytes_in_use == 0);
}

TEST_CASE("data without a known length ends where the source says so", "[batch_producer]") {
  const int workers = GENERATE(0, 1, 4);
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    write_numbers(ticket, batch);
    return ticket.batch < 10;
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), penstock::Unbounded(4), source, pool,
                                  {.workers = workers, .depth = 6});
  for (std::uint64_t i = 0; i < 10; ++i) {
    const auto batch = producer.next();
    REQUIRE(batch);
    CHECK(batch->ticket().batch == i);
  }
  CHECK_FALSE(producer.next());
  CHECK_FALSE(producer.next());
}

TEST_CASE("a source may deliver fewer samples than it was asked for", "[batch_producer]") {
  const auto layout = numbers_layout(8);
  const auto source = [layout](const Ticket& ticket, Numbers& batch) {
    write_numbers(ticket, batch);
    layout.resize(batch, 3);
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(layout, Sampler{{.samples = 16, .batch_size = 8}}, source, pool,
                                  {.workers = 1});
  const auto batch = producer.next();
  CHECK(batch->samples() == 3);
  CHECK(read_numbers(*batch).size() == 3);
}

TEST_CASE("a source that points a field elsewhere is told", "[batch_producer]") {
  static std::uint64_t elsewhere[8];
  const auto source = [](const Ticket&, Numbers& batch) {
    batch.sample = penstock::Tensor<std::uint64_t, 1>(elsewhere, batch.sample.extent(0));
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(8), Sampler{{.samples = 8, .batch_size = 8}},
                                  source, pool, {.workers = 1});
  CHECK_THROWS_AS(producer.next(), SourceError);
}

TEST_CASE("any type with batches and samples is a sampler", "[batch_producer]") {
  struct EveryThird {
    std::uint64_t batches() const { return 4; }
    void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
      out.assign({100 * epoch + 3 * batch, 7});
    }
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(2), EveryThird{}, write_numbers, pool,
                                  {.workers = 2, .epochs = 2});
  CHECK(read_all(producer) == serial_sample_numbers(EveryThird{}, 2));
}

TEST_CASE("a sampler that names more samples than a batch holds is told at that batch",
          "[batch_producer]") {
  struct Greedy {
    std::uint64_t batches() const { return 2; }
    void samples(std::uint64_t, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
      out.assign(batch == 0 ? 5 : 4, 1);
    }
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), Greedy{}, write_numbers, pool, {.workers = 1});
  CHECK_THROWS_WITH(producer.next(), Mentions("5 samples"));
  CHECK(producer.next());
}

TEST_CASE("a source that waits is asked to stop when the producer goes", "[batch_producer]") {
  std::atomic<int> inside{0};
  PinnedPool pool;
  {
    BatchProducer<Numbers> producer(numbers_layout(4), penstock::Unbounded::indexed(4),
                                    [&](const Ticket&, Numbers&, std::stop_token stop) {
                                      std::mutex mutex;
                                      std::condition_variable_any never;
                                      std::unique_lock lock(mutex);
                                      ++inside;
                                      never.wait(lock, stop, [] { return false; });
                                      return !stop.stop_requested();
                                    },
                                    pool, {.workers = 2});
    CHECK(eventually([&] { return inside == 2; }));
  }
  CHECK(pool.stats().bytes_in_use == 0);
}
