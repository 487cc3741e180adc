// SPDX-License-Identifier: Apache-2.0

// Several threads call next() at the same time. Runs emulated, and on a GPU.

#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"

using penstock::Prefetcher;
using penstock::Sampler;
using penstock::SourceError;
using penstock::Ticket;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::PinnedMemory;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

constexpr std::int64_t kRows = 4;
constexpr std::uint64_t kSharedBatches = 300;

Sampler shared_sampler() {
  return Sampler{{.samples = kSharedBatches * kRows, .batch_size = kRows}};
}

/// A thread that calls next until the end, with a stream of its own.
struct Consumer {
  TestStream stream;
  PinnedMemory<std::uint64_t> first_samples{kSharedBatches};  // of each batch, from the device
  std::vector<std::uint64_t> batches, errors;                 // in the order in which they came
  int ends = 0;
  std::uint64_t failed_calls = 0;

  void consume(Prefetcher<Numbers>& prefetcher) {
    while (ends == 0) {
      try {
        const auto batch = prefetcher.next(stream);
        if (batch)
          take(batch);
        else
          ++ends;
      } catch (const SourceError& error) {
        errors.push_back(error.batch());
      }
    }
    failed_calls += cudaStreamSynchronize(stream) != cudaSuccess;
  }

  void take(const penstock::Lease<Numbers>& batch) {
    failed_calls +=
        cudaMemcpyAsync(first_samples.data() + batches.size(), batch->sample.data_handle(),
                        sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream) != cudaSuccess;
    batches.push_back(batch.ticket().batch);
  }
};

/// Four of them, until all have seen the end.
std::vector<std::unique_ptr<Consumer>> consume(Prefetcher<Numbers>& prefetcher) {
  std::vector<std::unique_ptr<Consumer>> consumers;
  for (int i = 0; i < 4; ++i) consumers.push_back(std::make_unique<Consumer>());
  std::vector<std::thread> threads;
  for (auto& consumer : consumers)
    threads.emplace_back([&prefetcher, &consumer] { consumer->consume(prefetcher); });
  for (std::thread& thread : threads) thread.join();
  return consumers;
}

}  // namespace

TEST_CASE("of several threads each batch and each error goes to one, and the end to all",
          "[endings][threads]") {
  const int workers = GENERATE(0, 1, 3);
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch % 10 == 7) throw std::runtime_error("bad image");
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shared_sampler(), source,
                                 {.workers = workers, .device_depth = 5});
  std::vector<int> came(kSharedBatches, 0);
  for (const auto& consumer : consume(prefetcher)) {
    CHECK(std::is_sorted(consumer->batches.begin(), consumer->batches.end()));
    CHECK(std::is_sorted(consumer->errors.begin(), consumer->errors.end()));
    CHECK(consumer->ends == 1);
    CHECK(consumer->failed_calls == 0);
    for (const std::uint64_t batch : consumer->errors) {
      CHECK(batch % 10 == 7);
      ++came[batch];
    }
    for (std::size_t i = 0; i < consumer->batches.size(); ++i) {
      const std::uint64_t batch = consumer->batches[i];
      ++came[batch];
      if (consumer->first_samples[i] != batch * kRows)
        FAIL_CHECK("batch " << batch << " has the contents of another");
    }
  }
  CHECK(came == std::vector<int>(kSharedBatches, 1));
}

TEST_CASE("unordered, of several threads each batch goes to one", "[endings][threads]") {
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shared_sampler(), write_numbers,
                                 {.workers = 3, .ordered = false});
  std::vector<int> came(kSharedBatches, 0);
  for (const auto& consumer : consume(prefetcher)) {
    CHECK(consumer->ends == 1);
    for (const std::uint64_t batch : consumer->batches) ++came[batch];
  }
  CHECK(came == std::vector<int>(kSharedBatches, 1));
}

TEST_CASE("one thread restores while others call next", "[endings][threads]") {
  Prefetcher<Numbers> prefetcher(numbers_layout(kRows), shared_sampler(), write_numbers,
                                 {.workers = 2, .epochs = 1'000'000});
  const auto start = prefetcher.state();
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      const penstock::Stream stream;
      while (!over) taken += bool(prefetcher.next(stream.get()));
    });
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t before = taken;
    while (taken < before + 5) std::this_thread::yield();
    prefetcher.restore(start);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  prefetcher.restore(start);
  const penstock::Stream stream;
  CHECK(prefetcher.next(stream.get()).ticket().batch == 0);
}
