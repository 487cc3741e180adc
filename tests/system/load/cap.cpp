// SPDX-License-Identifier: Apache-2.0

// Page-locked memory at its cap all the time: 16 threads share a PinnedPool that has room for two
// blocks of the largest size, and ask for blocks of three sizes, so that blocks are evicted. Each
// thread fills its block, copies it to the device and checks there what arrived. Beside it two
// pipelines of depth 1, with 8 workers each.

#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "audit.hpp"
#include "flat.hpp"
#include "machine.hpp"
#include "scenarios.hpp"

namespace penstock::test {
namespace {

constexpr std::size_t kAcquirers = 16;
constexpr std::array<std::size_t, 3> kBlocks{1 << 10, 3 << 10, 4 << 10};  // bytes
constexpr std::size_t kCap = 2 * kBlocks.back();

/// Counts the words of a block that are not `value`.
struct CheckBlock {
  const std::uint64_t* words;
  std::size_t count;
  std::uint64_t value;
  std::uint64_t* torn;
  void operator()(std::int64_t) const {
    for (std::size_t i = 0; i < count; ++i) *torn += words[i] == value ? 0 : 1;
  }
};

struct Acquirers {
  PinnedPool pool{{.max_bytes = kCap, .timeout = std::chrono::minutes(5)}};
  std::atomic<std::int64_t> left{0};
  std::atomic<std::uint64_t> torn{0};
  std::mutex mutex;
  std::exception_ptr failure;

  void run(std::uint64_t acquisitions, std::uint64_t seed) {
    left = static_cast<std::int64_t>(acquisitions);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kAcquirers; ++i)
      threads.emplace_back([this, i, seed] { work(seed * kAcquirers + i); });
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
    if (torn != 0) throw std::runtime_error(std::to_string(torn) + " words are torn");
  }

  void work(std::uint64_t seed) noexcept try {
    const Stream stream;
    std::uint64_t* device = nullptr;  // words, and behind them the count of torn ones
    const std::size_t words = kBlocks.back() / sizeof(std::uint64_t);
    detail::check(cudaMalloc(reinterpret_cast<void**>(&device), kBlocks.back() + 8), "cudaMalloc");
    detail::check(cudaMemsetAsync(device + words, 0, 8, stream.get()), "cudaMemsetAsync");
    for (std::uint64_t i = 0; left.fetch_sub(1) > 0; ++i) {
      const std::uint64_t value = scrambled(seed + i * 1000);
      const std::size_t bytes = kBlocks[value % kBlocks.size()], count = bytes / sizeof value;
      PinnedBlock block = pool.acquire(bytes);
      std::fill_n(reinterpret_cast<std::uint64_t*>(block.data()), count, value);
      block.copy_to(device, bytes, stream.get());
      for_each(stream.get(), 1, CheckBlock{device, count, value, device + words});
      if (pool.stats().bytes > kCap) throw std::runtime_error("the pool is over its cap");
    }
    stream.synchronize();
    torn += device[words];
    detail::check(cudaFree(device), "cudaFree");
  } catch (...) {
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
    left = 0;
  }
};

void at_once(std::uint64_t /*sample*/) {}

/// A pipeline with one block and one slot, for as long as the others run.
void deliver(const AnySource<Rows>& source, const std::atomic<bool>& over) {
  const Sampler sampler = rows_sampler(1000, 4, 9);
  const Stream stream;
  Audit audit(sampler);
  Prefetcher<Rows> prefetcher(
      rows_layout(4, 2), sampler, source,
      {.workers = 8, .host_depth = 1, .device_depth = 1, .epochs = std::uint64_t{1} << 40});
  const std::size_t bytes = prefetcher.stats().host_bytes;
  while (!over) {
    audit.take(prefetcher.next(stream.get()), stream.get());
    if (prefetcher.stats().host_bytes != bytes)
      throw std::runtime_error("the pipeline takes other memory than at first");
  }
  audit.finish();
}

}  // namespace

void at_the_cap(std::uint64_t acquisitions) {
  constexpr std::uint64_t kParts = 10;
  fresh_machine();
  std::uint64_t reused = 0, allocated = 0, waits = 0;
  std::atomic<bool> over{false};
  std::exception_ptr failures[2];
  std::vector<std::thread> pipelines;
  const std::uint64_t epoch = rows_sampler(1000, 4, 9).batches();
  const AnySource<Rows> sources[2] = {batch_source(epoch, at_once), sample_source(epoch, at_once)};
  for (int i = 0; i < 2; ++i)
    pipelines.emplace_back([&, i] {
      try {
        deliver(sources[i], over);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  std::exception_ptr failure;
  try {
    // The thread of a stream ends by itself after the stream is destroyed.
    Flat flat("cap", acquisitions, {.threads = kAcquirers});
    for (std::uint64_t part = 0; part < kParts; ++part) {
      {
        Acquirers acquirers;
        acquirers.run(acquisitions / kParts + 1, part);
        const PinnedPoolStats stats = acquirers.pool.stats();
        reused += stats.reused;
        allocated += stats.allocated;
        waits += stats.waits;
      }
      flat.reach((part + 1) * (acquisitions / kParts + 1));
    }
    flat.finish();
    std::cout << reused << " blocks reused, " << allocated << " allocated, " << waits << " waits\n";
    if (waits == 0) throw std::runtime_error("nobody had to wait: that was no load");
  } catch (...) {
    failure = std::current_exception();
  }
  over = true;
  for (std::thread& pipeline : pipelines) pipeline.join();
  for (const std::exception_ptr& one : {failure, failures[0], failures[1]})
    if (one) std::rethrow_exception(one);
}

}  // namespace penstock::test
