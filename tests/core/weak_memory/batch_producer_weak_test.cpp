// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/batch_producer.hpp>

using penstock::BatchProducer;
using penstock::PinnedPool;
using penstock::ProducerOptions;
using penstock::Ticket;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::ExploreOptions;
using penstock::test::weak::fail_start;
using penstock::test::weak::wait_until_others_wait;

namespace {

struct Values {
  penstock::Tensor<std::uint64_t, 1> value;
};

constexpr ExploreOptions kExecutions{.executions = 1000, .most_steps = 100'000};

void write_values(const Ticket& ticket, Values& batch) {
  batch.value(0) = ticket.samples[0];
}

/// One sample a batch, two workers.
template <class Source>
BatchProducer<Values> make(PinnedPool& pool, std::uint64_t batches, Source source) {
  return BatchProducer<Values>(penstock::Layout<Values>{1}.field(&Values::value, {}),
                               penstock::Sampler{{.samples = batches, .batch_size = 1}},
                               std::move(source), pool, {.workers = 2, .depth = 2});
}

/// Holds sources until it is opened.
class Latch {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
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

TEST_CASE("weak: next sleeps until a batch is there", "[batch_producer]") {
  explore(
      [] {
        Latch latch;
        PinnedPool pool;
        auto producer = make(pool, 3, [&](const Ticket& ticket, Values& batch) {
          latch.wait();
          write_values(ticket, batch);
        });
        std::thread consumer([&] {
          for (std::uint64_t i = 0; i < 3; ++i)
            expect((*producer.next())->value(0) == i, "the next batch");
          expect(!producer.next(), "the end");
        });
        wait_until_others_wait();
        latch.open();
        consumer.join();
      },
      kExecutions);
}

TEST_CASE("weak: workers sleep while there is no room and no memory", "[batch_producer]") {
  const std::size_t blocks = GENERATE(1u, 2u, 4u);
  explore(
      [blocks] {
        PinnedPool pool({.max_bytes = blocks * 512, .timeout = std::chrono::milliseconds::max()});
        auto producer = make(pool, 6, write_values);
        wait_until_others_wait();
        for (std::uint64_t i = 0; i < 6; ++i)
          expect((*producer.next())->value(0) == i, "the next batch");
        expect(!producer.next(), "the end");
      },
      kExecutions);
}

TEST_CASE("weak: every source is asked to stop before any of them is waited for",
          "[batch_producer]") {
  explore(
      [] {
        PinnedPool pool;
        std::atomic<int> inside{0}, stopped{0};
        auto producer = make(pool, 9, [&](const Ticket&, Values&, std::stop_token stop) {
          ++inside;
          while (!stop.stop_requested()) std::this_thread::yield();
          ++stopped;
          while (stopped.load() < 2) std::this_thread::yield();
          return true;
        });
        while (inside.load() < 2) std::this_thread::yield();
      },
      kExecutions);
}

TEST_CASE("weak: a worker that cannot be started is an error, and those that run are stopped",
          "[batch_producer]") {
  explore(
      [] {
        PinnedPool pool;
        fail_start(2);
        bool thrown = false;
        try {
          make(pool, 9, write_values);
        } catch (const std::system_error&) {
          thrown = true;
        }
        expect(thrown, "the error is told");
        expect(pool.stats().bytes_in_use == 0, "nothing is held");
      },
      kExecutions);
}

TEST_CASE("weak: when a seek cannot start all workers, those that run are asked to stop",
          "[batch_producer]") {
  explore(
      [] {
        PinnedPool pool;
        std::atomic<int> inside{0};
        auto producer = make(pool, 9, [&](const Ticket&, Values&, std::stop_token stop) {
          ++inside;
          while (!stop.stop_requested()) std::this_thread::yield();
          inside.fetch_sub(1);
          return true;
        });
        fail_start(2);
        bool thrown = false;
        try {
          producer.seek(0, 0);
        } catch (const std::system_error&) {
          thrown = true;
        }
        expect(thrown, "the error is told");
        while (inside.load() > 0) std::this_thread::yield();
        expect(!producer.next(), "there are no more batches");
      },
      kExecutions);
}

TEST_CASE("weak: of two threads in next, one is served or told, and both at last",
          "[batch_producer]") {
  explore(
      [] {
        PinnedPool pool;
        auto producer = make(pool, 4, write_values);
        std::atomic<std::uint64_t> seen{0};
        const auto consume = [&] {
          for (;;) {
            try {
              const auto batch = producer.next();
              if (!batch) return;
              seen.fetch_or(std::uint64_t{1} << (*batch)->value(0));
            } catch (const std::logic_error&) {
              std::this_thread::yield();
            }
          }
        };
        std::thread other(consume);
        consume();
        other.join();
        expect(seen.load() == 15, "each batch came once");
      },
      kExecutions);
}

TEST_CASE("weak: of many workers without a source each is reported once, among the batches",
          "[batch_producer][per_worker]") {
  const int lost = GENERATE(2, 3, 4);
  explore(
      [lost] {
        constexpr std::uint64_t kBatches = 2;
        PinnedPool pool;
        std::atomic<int> made{0};
        const auto make_source = [&made, lost] {
          if (made.fetch_add(1) < lost) throw std::runtime_error("none");
          return &write_values;
        };
        BatchProducer<Values> producer(penstock::Layout<Values>{1}.field(&Values::value, {}),
                                       penstock::Sampler{{.samples = kBatches, .batch_size = 1}},
                                       penstock::per_worker(make_source), pool,
                                       {.workers = 4, .depth = 2});
        const std::uint64_t delivered = lost == 4 ? 0 : kBatches;
        std::uint64_t next = 0;
        int reports = 0;
        std::set<int> reported;
        while (next < delivered || reports < lost) try {
            const auto batch = producer.next();
            if (!batch) break;
            expect((*batch)->value(0) == next++, "the next batch");
          } catch (const penstock::WorkerError& error) {
            ++reports;
            reported.insert(error.worker());
          }
        expect(next == delivered, "every batch of a worker with a source");
        expect(reports == lost && static_cast<int>(reported.size()) == lost,
               "each lost worker, once");
        for (int again = 0; lost == 4 && again < 3; ++again) try {
            producer.next();
            expect(false, "without a worker there is no end but errors");
          } catch (const penstock::WorkerError& error) {
            expect(reported.contains(error.worker()), "a worker that was lost");
          }
      },
      kExecutions);
}
