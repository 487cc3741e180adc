// SPDX-License-Identifier: Apache-2.0

// docs/recipes/lifetimes-and-threads.md: two threads take batches of one pipeline, a third ends
// the leases, and one lease outlives the pipeline. Exit code 0: each sample was seen once.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <penstock/penstock.hpp>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct Numbers {
  penstock::Tensor<std::int64_t, 1> values;  // sample
};

/// Adds all values of a batch to *sum.
struct Add {
  Numbers batch;
  std::int64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.values.extent(0); ++i) *sum += batch.values(i);
  }
};

/// A stream, and a sum that its work adds to. The stream is the first member: it is the last to go.
struct Consumer {
  penstock::Stream stream;
  penstock::DeviceArena arena{1, sizeof(std::int64_t)};
  penstock::DeviceSlot slot = arena.acquire(stream.get());
  std::int64_t* sum = reinterpret_cast<std::int64_t*>(slot.data());

  Consumer() { cudaMemsetAsync(sum, 0, sizeof *sum, stream.get()); }
  std::int64_t value() const {
    std::int64_t result = 0;
    penstock::Readback<std::int64_t> line{1};
    line.push(sum, stream.get(), [&](std::int64_t value) { result = value; });
    line.drain();  // `result` is the callback's until this returns
    return result;
  }
};

}  // namespace

int main() {
  Consumer first, second, third;  // the streams outlive every lease
  penstock::Lease<Numbers> last;  // a lease may outlive its pipeline
  // What the source refers to outlives the pipeline.
  const std::array<std::int64_t, 2> table{1'000, 2'000};
  {
    auto prefetcher = std::make_unique<penstock::Prefetcher<Numbers>>(
        penstock::Layout<Numbers>{10}.field(&Numbers::values, {}),  // copied: a temporary will do
        penstock::SamplerOptions{.samples = 1'000},
        [&table](const penstock::Ticket& ticket, Numbers& batch) {
          for (std::size_t i = 0; i < ticket.samples.size(); ++i)
            batch.values(i) = table[i % 2] + static_cast<std::int64_t>(ticket.samples[i]);
        },
        penstock::PrefetcherOptions{.workers = 2, .device_depth = 6});
    last = prefetcher->next(third.stream.get());

    std::mutex mutex;
    std::condition_variable_any news;
    std::vector<penstock::Lease<Numbers>> done;
    const auto consume = [&](const Consumer& consumer) {
      while (auto batch = prefetcher->next(consumer.stream.get())) {
        penstock::for_each(consumer.stream.get(), 1, Add{*batch, consumer.sum});
        const std::lock_guard lock(mutex);
        done.push_back(std::move(batch));  // still leased: another thread ends it
        news.notify_one();
      }
    };
    std::jthread ender([&](const std::stop_token& stop) {
      std::unique_lock lock(mutex);
      while (news.wait(lock, stop, [&] { return !done.empty(); }))
        done.clear();  // ends leases, behind the work of the streams that took them
    });
    std::thread one(consume, std::cref(first)), two(consume, std::cref(second));
    one.join();
    two.join();
  }  // The pipeline is destroyed: its workers are joined, its pinned memory is freed.
  penstock::for_each(third.stream.get(), 1, Add{*last, third.sum});
  last.release();  // The device memory is freed behind this work.

  const std::int64_t sum = first.value() + second.value() + third.value();
  constexpr std::int64_t kExpected = 500 * 1'000 + 500 * 2'000 + 999 * 500;
  if (sum != kExpected) {
    std::cerr << "the sum is " << sum << ", not " << kExpected << '\n';
    return 1;
  }
  std::cout << "two threads and a late lease saw 1000 samples\n";
  return 0;
}
