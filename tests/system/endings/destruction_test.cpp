// SPDX-License-Identifier: Apache-2.0

// A prefetcher is destroyed in every state that a pipeline has. Each time its workers are joined
// without a wait for the device, and the memory is freed once the device has stopped reading it;
// that nothing is left is checked after each test case. Runs emulated, and on a GPU.

#include <penstock/prefetcher.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"

using penstock::Lease;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Sampler;
using penstock::SourceError;
using penstock::Ticket;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::NumbersSink;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

constexpr std::int64_t kBatchSize = 4;
constexpr std::uint64_t kBatches = 25;

Sampler sampler() {
  return Sampler{{.samples = kBatches * kBatchSize, .batch_size = kBatchSize, .shuffle = true}};
}

/// What a pipeline's source does, and what it tells the test.
struct Plan {
  std::atomic<std::uint64_t> calls{0};
  bool throws = false;
  bool waits = false;  // in each call until it is asked to stop
};

/// A pipeline, and what is needed to bring it into a state. Workers have copies of the plan's
/// pointer: once the test has the only one, they are gone.
class Pipeline {
 public:
  explicit Pipeline(PrefetcherOptions options) : options_(options) {}

  std::shared_ptr<Plan> plan = std::make_shared<Plan>();
  TestStream stream;
  Gate gate;
  std::vector<Lease<Numbers>> leases;

  Prefetcher<Numbers>& prefetcher() {
    if (!prefetcher_)
      prefetcher_.emplace(numbers_layout(kBatchSize), sampler(), Source{plan}, options_);
    return *prefetcher_;
  }

  Lease<Numbers> next() { return prefetcher().next(stream); }

  /// Holds the consumer's stream, and with it each copy into a slot whose lease has ended there.
  void hold_stream() { gate.hold(stream); }

  /// Waits until the source was called that often: all that it could be.
  void wait_for_calls(std::uint64_t calls) {
    prefetcher();
    CHECK(eventually([&] { return plan->calls == calls; }));
  }

  /// Destroys the prefetcher. The gate stays closed until the workers are gone.
  void destroy() {
    std::thread opener([this] {
      joined_ = eventually([&] { return plan.use_count() == 1; });
      gate.open();
    });
    prefetcher_.reset();
    if (leases.empty()) CHECK(plan.use_count() == 1);
    leases.clear();
    opener.join();
    CHECK(joined_);
  }

 private:
  struct Source {
    std::shared_ptr<Plan> plan;
    bool operator()(const Ticket& ticket, Numbers& batch, const std::stop_token& stop) {
      ++plan->calls;
      while (plan->waits && !stop.stop_requested()) std::this_thread::yield();
      if (plan->throws) throw std::runtime_error("bad image");
      write_numbers(ticket, batch);
      return true;
    }
  };

  PrefetcherOptions options_;
  bool joined_ = false;
  std::optional<Prefetcher<Numbers>> prefetcher_;
};

/// A state by its name, and how a pipeline with 3 host blocks and 2 slots comes into it.
struct State {
  const char* name;
  void (*reach)(Pipeline&);
};

const State kStates[] = {
    {"constructed", [](Pipeline& p) { p.prefetcher(); }},
    {"inside the source",
     [](Pipeline& p) {
       p.plan->waits = true;
       p.wait_for_calls(1);
     }},
    {"the first batch is ready",
     [](Pipeline& p) {
       CHECK(eventually([&] { return p.prefetcher().stats().copy.batches > 0; }));
     }},
    {"full: the worker waits for room", [](Pipeline& p) { p.wait_for_calls(2 + 3); }},
    {"the worker waits for memory",
     [](Pipeline& p) {
       for (int i = 0; i < 2; ++i) p.leases.push_back(p.next());
       p.hold_stream();
       p.leases.clear();         // Two copies wait for the gate, each with its block,
       p.wait_for_calls(2 + 3);  // and a third batch has the last one.
     }},
    {"errors are staged",
     [](Pipeline& p) {
       p.plan->throws = true;
       p.wait_for_calls(2 + 3);
     }},
    {"after an error",
     [](Pipeline& p) {
       p.plan->throws = true;
       CHECK_THROWS_AS(p.next(), SourceError);
     }},
    {"leased", [](Pipeline& p) { p.leases.push_back(p.next()); }},
    {"all slots are leased",
     [](Pipeline& p) {
       for (int i = 0; i < 2; ++i) p.leases.push_back(p.next());
     }},
    {"leased, and the consumer's stream is held",
     [](Pipeline& p) {
       p.leases.push_back(p.next());
       p.hold_stream();
       CHECK_CUDA(cudaMemsetAsync(p.leases[0]->sample.data_handle(), 0, 8, p.stream));
     }},
    {"a lease has ended on a stream that is held",
     [](Pipeline& p) {
       const auto lease = p.next();
       p.hold_stream();
       CHECK_CUDA(cudaMemsetAsync(lease->sample.data_handle(), 0, 8, p.stream));
     }},
    {"at the end",
     [](Pipeline& p) {
       while (p.next()) {
       }
     }},
    {"restored a moment ago",
     [](Pipeline& p) {
       const auto start = p.prefetcher().state();
       for (int i = 0; i < 5; ++i) p.next();
       p.prefetcher().restore(start);
     }},
    {"restored, with all slots leased and copies under way",
     [](Pipeline& p) {
       for (int i = 0; i < 2; ++i) p.leases.push_back(p.next());
       p.hold_stream();
       p.leases.pop_back();
       p.prefetcher().restore(p.prefetcher().state());
     }},
    {"refused to restore",
     [](Pipeline& p) {
       auto state = p.prefetcher().state();
       ++state.seed;
       CHECK_THROWS_AS(p.prefetcher().restore(state), std::invalid_argument);
     }},
};

}  // namespace

TEST_CASE("a prefetcher can go in any state", "[endings]") {
  for (const State& state : kStates) {
    INFO(state.name);
    Pipeline pipeline({.workers = 1, .host_depth = 3, .device_depth = 2});
    state.reach(pipeline);
    pipeline.destroy();
  }
}

TEST_CASE("a prefetcher can go after any number of batches", "[endings]") {
  TestStream stream;
  const bool throwing = GENERATE(false, true);
  const auto source = [throwing](const Ticket& ticket, Numbers& batch) {
    if (throwing && ticket.batch % 2 == 0) throw std::runtime_error("no");
    write_numbers(ticket, batch);
  };
  for (int taken = 0; taken < 20; ++taken) {
    Prefetcher<Numbers> prefetcher(
        numbers_layout(kBatchSize), sampler(), source,
        {.workers = 1 + taken % 3, .host_depth = 1 + static_cast<std::size_t>(taken % 5)});
    for (int i = 0; i < taken; ++i) {
      try {
        prefetcher.next(stream);
      } catch (const SourceError&) {
        CHECK(throwing);
      }
    }
  }
}

TEST_CASE("destruction waits for the device to stop reading", "[endings]") {
  Gate gate;
  TestStream stream;
  std::atomic<bool> opened{false};
  std::thread opener;
  {
    Prefetcher<Numbers> prefetcher(numbers_layout(kBatchSize), sampler(), write_numbers,
                                   {.workers = 1});
    auto lease = prefetcher.next(stream);
    gate.hold(stream);
    REQUIRE_CUDA(cudaMemsetAsync(lease->sample.data_handle(), 0, 8, stream));
    lease.release();
    opener = std::thread([&] {
      opened = true;
      gate.open();
    });
  }
  CHECK(opened);
  opener.join();
}

TEST_CASE("an exception on another thread unwinds past a prefetcher", "[endings]") {
  const std::shared_ptr<Plan> plan = std::make_shared<Plan>();
  auto result = std::async(std::launch::async, [plan] {
    const penstock::Stream stream;
    Prefetcher<Numbers> prefetcher(
        numbers_layout(kBatchSize), sampler(),
        [plan](const Ticket& ticket, Numbers& batch) { write_numbers(ticket, batch); },
        {.workers = 2});
    const auto first = prefetcher.next(stream.get()), second = prefetcher.next(stream.get());
    throw std::range_error("the training step failed");
  });
  CHECK_THROWS_AS(result.get(), std::range_error);
  result = {};
  CHECK(plan.use_count() == 1);
}

TEST_CASE("leases outlive their prefetcher, and end on other threads", "[endings]") {
  TestStream stream;
  NumbersSink sink(kBatchSize, 3);
  std::vector<Lease<Numbers>> leases;
  std::vector<std::vector<std::uint64_t>> expected;
  std::vector<std::thread> threads;
  {
    Prefetcher<Numbers> prefetcher(numbers_layout(kBatchSize), sampler(), write_numbers,
                                   {.workers = 2, .device_depth = 4});
    for (int i = 0; i < 3; ++i) leases.push_back(prefetcher.next(stream));
    // One ends while the prefetcher goes, before or after.
    threads.emplace_back([lease = prefetcher.next(stream)]() mutable { lease.release(); });
  }
  for (const Lease<Numbers>& lease : leases) {
    const auto samples = lease.ticket().samples;
    expected.emplace_back(samples.begin(), samples.end());
    sink.take(lease, stream);
  }
  for (Lease<Numbers>& lease : leases)
    threads.emplace_back([held = std::move(lease)]() mutable { held.release(); });
  for (std::thread& thread : threads) thread.join();
  sink.wait(stream);
  for (std::size_t i = 0; i < 3; ++i) CHECK(sink.sample_numbers(i) == expected[i]);
}

TEST_CASE("stats can be asked for all along a pipeline's life", "[endings]") {
  TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(kBatchSize), sampler(), write_numbers,
                                 {.workers = 2});
  std::atomic<std::uint64_t> asked{0}, most{0};
  std::jthread asking([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      most = std::max(most.load(), prefetcher.stats().consumer.batches);
      ++asked;
    }
  });
  const auto start = prefetcher.state();
  for (int round = 0; round < 3; ++round) {
    while (prefetcher.next(stream)) {
    }
    prefetcher.restore(start);
  }
  const std::uint64_t before = asked;
  CHECK(eventually([&] { return asked > before; }));
  asking = {};
  CHECK(most == 3 * kBatches);
}
