// SPDX-License-Identifier: Apache-2.0

// A whole pipeline of two workers, two pinned blocks and two device slots.

#include "replace_std.hpp"
//
#include <penstock/prefetcher.hpp>

#include "instant_cuda.hpp"

using penstock::Lease;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Ticket;
using penstock::test::weak::Access;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::ExploreOptions;
using penstock::test::weak::fail_call;
using penstock::test::weak::fail_no_calls;
using penstock::test::weak::note_access;

namespace {

struct Values {
  penstock::Tensor<std::uint64_t, 1> value;
};

constexpr ExploreOptions kExecutions{.executions = 2000, .most_steps = 200'000};

void write_values(const Ticket& ticket, Values& batch) {
  note_access(batch.value.data_handle(), Access::write);
  batch.value(0) = ticket.samples[0];
}

std::uint64_t read(const Lease<Values>& lease) {
  note_access(lease->value.data_handle(), Access::read);
  return lease->value(0);
}

/// One sample a batch.
template <class Source>
Prefetcher<Values> make(std::uint64_t batches, Source source, PrefetcherOptions options = {}) {
  options.workers = 2;
  options.host_depth = 2;
  options.placement = penstock::Placement::off();  // It would read files, each time.
  options.stall_timeout = std::chrono::milliseconds(0);
  return Prefetcher<Values>(penstock::Layout<Values>{1}.field(&Values::value, {}),
                            penstock::Sampler{{.samples = batches, .batch_size = 1}},
                            std::move(source), options);
}

}  // namespace

TEST_CASE("weak: every batch comes once, in order, and then the end", "[prefetcher]") {
  explore(
      [] {
        auto prefetcher = make(5, write_values);
        for (std::uint64_t i = 0; i < 5; ++i) {
          const auto lease = prefetcher.next(nullptr);
          expect(lease && read(lease) == i, "the next batch");
        }
        expect(!prefetcher.next(nullptr), "the end");
      },
      kExecutions);
}

TEST_CASE("weak: leases end on any thread", "[prefetcher]") {
  explore(
      [] {
        auto prefetcher = make(5, write_values);
        for (std::uint64_t i = 0; i < 5; i += 2) {
          auto lease = prefetcher.next(nullptr);
          expect(read(lease) == i, "the next batch");
          std::thread other([held = std::make_shared<Lease<Values>>(std::move(lease))] {
            read(*held);
            held->release();
          });
          if (i + 1 < 5) expect(read(prefetcher.next(nullptr)) == i + 1, "the next batch");
          other.join();
        }
        expect(!prefetcher.next(nullptr), "the end");
      },
      kExecutions);
}

TEST_CASE("weak: a pipeline can go at any moment", "[prefetcher]") {
  const std::uint64_t taken = GENERATE(0u, 1u, 3u);
  explore(
      [taken] {
        auto prefetcher = make(9, write_values);
        for (std::uint64_t i = 0; i < taken; ++i) prefetcher.next(nullptr);
      },
      kExecutions);
}

TEST_CASE("weak: a run goes on elsewhere at any moment, leases alive", "[prefetcher]") {
  explore(
      [] {
        auto prefetcher = make(6, write_values);
        Lease<Values> held = prefetcher.next(nullptr);
        prefetcher.next(nullptr);
        auto state = prefetcher.state();
        state.batch = 4;
        std::thread releaser([&] { held.release(); });
        prefetcher.restore(state);
        for (std::uint64_t i = 4; i < 6; ++i)
          expect(read(prefetcher.next(nullptr)) == i, "the next batch");
        expect(!prefetcher.next(nullptr), "the end");
        releaser.join();
      },
      kExecutions);
}

TEST_CASE("weak: an error comes at its batch's place", "[prefetcher]") {
  explore(
      [] {
        auto prefetcher = make(4, [](const Ticket& ticket, Values& batch) {
          if (ticket.batch % 2 == 0) throw std::runtime_error("bad");
          write_values(ticket, batch);
        });
        for (std::uint64_t i = 0; i < 4; ++i) {
          std::uint64_t got = 0;
          try {
            got = read(prefetcher.next(nullptr));
          } catch (const penstock::SourceError& error) {
            expect(error.batch() == i, "the error's place");
            continue;
          }
          expect(i % 2 == 1 && got == i, "the next batch");
        }
        expect(!prefetcher.next(nullptr), "the end");
      },
      kExecutions);
}

TEST_CASE("weak: a source says that there is no more", "[prefetcher]") {
  const bool ordered = GENERATE(true, false);
  explore(
      [ordered] {
        auto prefetcher = make(100,
                               [](const Ticket& ticket, Values& batch) {
                                 write_values(ticket, batch);
                                 return ticket.batch < 3;
                               },
                               {.ordered = ordered});
        std::uint64_t seen = 0;
        for (int i = 0; i < 3; ++i) seen |= std::uint64_t{1} << read(prefetcher.next(nullptr));
        expect(seen == 7, "each batch before the end");
        expect(!prefetcher.next(nullptr), "the end");
      },
      kExecutions);
}

TEST_CASE("weak: a source that waits hears that it should stop", "[prefetcher]") {
  explore(
      [] {
        std::atomic<int> waiting{0};
        auto prefetcher = make(9, [&](const Ticket&, Values&, std::stop_token stop) {
          ++waiting;
          while (!stop.stop_requested()) std::this_thread::yield();
          return true;
        });
        while (waiting.load() == 0) std::this_thread::yield();
      },
      kExecutions);
}

TEST_CASE("weak: a lease that ends wakes whoever waits for its slot", "[prefetcher]") {
  explore(
      [] {
        Prefetcher<Values> prefetcher(
            penstock::Layout<Values>{1}.field(&Values::value, {}),
            penstock::Sampler{{.samples = 2, .batch_size = 1}}, write_values,
            {.workers = 1, .device_depth = 1, .stall_timeout = std::chrono::milliseconds(0)});
        auto held = prefetcher.next(nullptr);
        std::thread ends([&] {
          penstock::test::weak::wait_until_others_wait();
          held.release();
        });
        expect(read(prefetcher.next(nullptr)) == 1, "the next batch");
        ends.join();
      },
      kExecutions);
}

TEST_CASE("weak: a lease whose end fails tells whoever waits for its slot", "[prefetcher]") {
  explore(
      [] {
        fail_no_calls();
        Prefetcher<Values> prefetcher(
            penstock::Layout<Values>{1}.field(&Values::value, {}),
            penstock::Sampler{{.samples = 2, .batch_size = 1}}, write_values,
            {.workers = 1, .device_depth = 1, .stall_timeout = std::chrono::milliseconds(0)});
        auto held = prefetcher.next(nullptr);
        std::thread ends([&] {
          penstock::test::weak::wait_until_others_wait();
          fail_call("cudaEventRecord", 0);
          fail_call("cudaStreamSynchronize", 0);
          held.release();
        });
        bool told = false;
        try {
          prefetcher.next(nullptr);
        } catch (const penstock::CudaError&) {
          told = true;
        }
        ends.join();
        expect(told, "nobody will ever give that slot back");
        fail_no_calls();
      },
      kExecutions);
}

TEST_CASE("weak: two workers fill a batch together, each row once, whole when it is delivered",
          "[prefetcher][per_sample]") {
  const int failing = GENERATE(-1, 1);
  explore(
      [failing] {
        const auto write_row = [failing](const penstock::Sample& sample, Values& batch) {
          if (static_cast<int>(sample.index) == failing) throw std::runtime_error("bad");
          note_access(&batch.value(sample.row), Access::write);
          batch.value(sample.row) = sample.index;
        };
        Prefetcher<Values> prefetcher(penstock::Layout<Values>{2}.field(&Values::value, {}),
                                      penstock::Sampler{{.samples = 5, .batch_size = 2}},
                                      penstock::per_sample(write_row),
                                      {.workers = 2,
                                       .host_depth = 2,
                                       .on_failure = penstock::FailurePolicy::skip(),
                                       .stall_timeout = std::chrono::milliseconds(0)});
        std::uint64_t next = 0;
        for (int batch = 0; batch < 3; ++batch) {
          const auto lease = prefetcher.next(nullptr);
          for (std::int64_t row = 0; row < lease.samples(); ++row, ++next) {
            next += static_cast<int>(next) == failing ? 1u : 0u;
            note_access(&lease->value(row), Access::read);
            expect(lease->value(row) == next, "the row");
          }
        }
        expect(next == 5 && !prefetcher.next(nullptr), "the end");
      },
      kExecutions);
}

TEST_CASE("weak: a pipeline whose rows several workers fill can go at any moment",
          "[prefetcher][per_sample]") {
  const int taken = GENERATE(0, 1);
  explore(
      [taken] {
        Prefetcher<Values> prefetcher(
            penstock::Layout<Values>{3}.field(&Values::value, {}),
            penstock::Sampler{{.samples = 12, .batch_size = 3}},
            penstock::per_sample([](const penstock::Sample& sample, Values& batch) {
              batch.value(sample.row) = sample.index;
            }),
            {.workers = 2, .host_depth = 2, .stall_timeout = std::chrono::milliseconds(0)});
        for (int i = 0; i < taken; ++i) prefetcher.next(nullptr);
      },
      kExecutions);
}

TEST_CASE("weak: a worker without a source is reported, and wakes whoever waits",
          "[prefetcher][per_worker]") {
  explore(
      [] {
        std::atomic<int> made{0};
        const auto make_source = [&made] {
          if (made.fetch_add(1) == 0) throw std::runtime_error("none");
          return &write_values;
        };
        auto prefetcher = make(2, penstock::per_worker(make_source));
        std::uint64_t delivered = 0;
        int reported = 0;
        while (delivered < 2 || reported < 1) try {
            const auto lease = prefetcher.next(nullptr);
            if (!lease) break;
            expect(read(lease) == delivered++, "the next batch");
          } catch (const penstock::WorkerError&) {
            ++reported;
          }
        expect(delivered == 2 && reported == 1, "all batches, and the lost worker");
      },
      kExecutions);
}
