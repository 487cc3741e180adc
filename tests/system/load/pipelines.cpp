// SPDX-License-Identifier: Apache-2.0

// 64 pipelines at a time in one process. Several threads construct them, take batches of them in
// turns, and end them: mid-epoch, or at their end, and with leases that another thread ends later.

#include <penstock/prefetcher.hpp>

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "../../support/eventually.hpp"
#include "audit.hpp"
#include "flat.hpp"
#include "machine.hpp"
#include "scenarios.hpp"

namespace penstock::test {
namespace {

constexpr std::size_t kPipelines = 64;
constexpr int kThreads = 6;
constexpr std::int64_t kBatchSize = 4;

void at_once(std::uint64_t /*sample*/) {}

/// A pipeline with its consumer. The leases outlive the prefetcher, and end before the stream does.
struct Pipeline {
  explicit Pipeline(std::uint64_t seed)
      : sampler(rows_sampler(50 + seed % 500, kBatchSize, seed)), audit(sampler) {
    const int workers = 1 + static_cast<int>(seed / 3 % 3);
    const PrefetcherOptions options{
        .workers = workers, .device_depth = 2 + seed / 9 % 2, .epochs = 1 + seed / 18 % 3};
    const auto layout = rows_layout(kBatchSize, 3);
    const std::uint64_t epoch = sampler.batches();
    end = epoch * options.epochs;
    switch (seed % 3) {
      case 0:
        prefetcher.emplace(layout, sampler, batch_source(epoch, at_once), options);
        break;
      case 1:
        prefetcher.emplace(layout, sampler, sample_source(epoch, at_once), options);
        break;
      default:
        prefetcher.emplace(layout, sampler, device_source(epoch, at_once), options);
    }
  }

  const Sampler sampler;
  const Stream stream;
  Audit audit;
  std::uint64_t end = 0;  // batches that there are
  std::optional<Prefetcher<Rows>> prefetcher;
};

/// What threads hand to each other.
struct LateLease {
  std::shared_ptr<Pipeline> of;  // dropped after the lease
  Lease<Rows> lease;
};

class Yard {
 public:
  /// Until `batches` more are delivered; then ends all that is left.
  void run(std::uint64_t batches, std::uint64_t seed) {
    left_ = static_cast<std::int64_t>(batches);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([this, i, seed] { work(seed * kThreads + static_cast<unsigned>(i)); });
    for (std::thread& thread : threads) thread.join();
    for (Place& place : places_) end(place.pipeline);
    while (end_a_lease()) {
    }
    if (failure_) std::rethrow_exception(failure_);
  }
  std::uint64_t delivered() const { return delivered_; }

 private:
  struct Place {
    std::mutex mutex;
    std::shared_ptr<Pipeline> pipeline;
  };

  void work(std::uint64_t seed) noexcept {
    std::mt19937_64 random(seed);
    try {
      while (left_ > 0) {
        Place& place = places_[random() % kPipelines];
        const std::unique_lock lock(place.mutex, std::try_to_lock);
        if (lock) use(place, random);
        if (random() % 4 == 0) end_a_lease();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      left_ = 0;
    }
  }

  void use(Place& place, std::mt19937_64& random) {
    if (!place.pipeline) place.pipeline = std::make_shared<Pipeline>(random());
    Pipeline& pipeline = *place.pipeline;
    for (std::uint64_t batches = random() % 32; batches > 0; --batches) {
      Lease<Rows> lease = pipeline.prefetcher->next(pipeline.stream.get());
      if (!lease) {
        if (pipeline.audit.next() != pipeline.end)
          throw std::runtime_error("a pipeline ended early");
        return end(place.pipeline);
      }
      pipeline.audit.take(lease, pipeline.stream.get());
      --left_;
      ++delivered_;
      // One at a time of each pipeline, so that there are slots left.
      if (batches == 1) hand_over({place.pipeline, std::move(lease)});
    }
    if (random() % 64 == 0) end(place.pipeline);
  }

  void hand_over(LateLease&& late) {
    const std::lock_guard lock(mutex_);
    for (LateLease& other : late_)
      if (other.of == late.of) return;  // It ends here.
    late_.push_back(std::move(late));
  }

  bool end_a_lease() {
    LateLease late;
    {
      const std::lock_guard lock(mutex_);
      if (late_.empty()) return false;
      late = std::move(late_.front());
      late_.pop_front();
    }
    late.lease.release();
    return true;
  }

  /// The prefetcher first, then the check of what it delivered.
  static void end(std::shared_ptr<Pipeline>& pipeline) {
    if (!pipeline) return;
    pipeline->prefetcher.reset();
    pipeline->stream.synchronize();
    pipeline->audit.finish();
    pipeline.reset();
  }

  std::array<Place, kPipelines> places_;
  std::mutex mutex_;  // of the next two
  std::deque<LateLease> late_;
  std::exception_ptr failure_;
  std::atomic<std::int64_t> left_{0};
  std::atomic<std::uint64_t> delivered_{0};
};

}  // namespace

void many_pipelines(std::uint64_t batches) {
  constexpr std::uint64_t kParts = 10;
  fresh_machine();
  // Threads that come and go leave malloc's arenas behind.
  Flat flat("pipelines", batches, {.resident_bytes = 16 << 20, .heap_bytes = 256 << 10});
  Audit(rows_sampler(1, 1, 1)).finish();  // The default stream has its thread now.
  const std::size_t threads = vitals().threads;
  Yard yard;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    yard.run(batches / kParts + 1, part);
    // The thread of a stream ends by itself after the stream is destroyed.
    static_cast<void>(eventually([&] { return vitals().threads <= threads; }));
    flat.reach(yard.delivered());
  }
  flat.finish();
}

}  // namespace penstock::test
