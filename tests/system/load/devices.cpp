// SPDX-License-Identifier: Apache-2.0

// A pipeline on each of 4 devices, and one consumer that goes round. Its streams are of every kind:
// created, the legacy default stream, its own (cudaStreamPerThread). Two other threads end the
// leases, each where another device is current than the lease's.

#include <penstock/prefetcher.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "audit.hpp"
#include "flat.hpp"
#include "machine.hpp"
#include "scenarios.hpp"

namespace penstock::test {
namespace {

constexpr int kDevices = 4;
constexpr std::int64_t kBatchSize = 8;

void at_once(std::uint64_t /*sample*/) {}

/// Made where its device is current.
struct Loader {
  explicit Loader(int device)
      : sampler(rows_sampler(997 + static_cast<unsigned>(device), kBatchSize, 5)), audit(sampler) {
    const PrefetcherOptions options{
        .workers = 2, .device_depth = 3, .epochs = std::uint64_t{1} << 40};
    const auto layout = rows_layout(kBatchSize, 3);
    const std::uint64_t epoch = sampler.batches();
    if (device % 3 == 0)
      prefetcher.emplace(layout, sampler, batch_source(epoch, at_once), options);
    else if (device % 3 == 1)
      prefetcher.emplace(layout, sampler, sample_source(epoch, at_once), options);
    else
      prefetcher.emplace(layout, sampler, device_source(epoch, at_once), options);
  }
  const Sampler sampler;
  const Stream stream, other;
  Audit audit;
  std::optional<Prefetcher<Rows>> prefetcher;
};

/// Ends leases, each where another device is current.
class Releasers {
 public:
  Releasers() {
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Releasers() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void take(Lease<Rows>&& lease, int device) {
    {
      const std::lock_guard lock(mutex_);
      leases_.emplace_back(std::move(lease), device);
    }
    changed_.notify_one();
  }
  void throw_failure() {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void work() noexcept {
    for (int turn = 0;; ++turn) {
      std::pair<Lease<Rows>, int> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return over_ || !leases_.empty(); });
        if (leases_.empty()) return;
        next = std::move(leases_.front());
        leases_.pop_front();
      }
      try {
        const int elsewhere = (next.second + 1 + turn % (kDevices - 1)) % kDevices;
        detail::check(cudaSetDevice(elsewhere), "cudaSetDevice", elsewhere);
        if (turn % 2 == 0)
          next.first.release();
        else
          next.first = Lease<Rows>();
        if (current_device() != elsewhere) throw std::logic_error("another device is current");
      } catch (...) {
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Lease<Rows>, int>> leases_;
  std::exception_ptr failure_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

/// A stream of each kind in turn.
cudaStream_t stream_of(const Loader& loader, std::uint64_t turn) {
  switch (turn % 3) {
    case 0:
      return loader.stream.get();
    case 1:
      return cudaStreamLegacy;
    default:
      return cudaStreamPerThread;
  }
}

}  // namespace

void four_devices(std::uint64_t batches) {
  fresh_machine(kDevices);
  Flat flat("devices", batches, {.heap_bytes = 1 << 20});  // what streams have in front of them
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int device = 0; device < kDevices; ++device) {
    const DeviceGuard guard(device);
    loaders.push_back(std::make_unique<Loader>(device));
  }
  {
    Releasers releasers;
    for (std::uint64_t i = 0; i < batches; ++i) {
      const int device = static_cast<int>(i % kDevices);
      const DeviceGuard guard(device);
      Loader& loader = *loaders[static_cast<std::size_t>(device)];
      const std::uint64_t turn = i / kDevices;
      const cudaStream_t stream = stream_of(loader, turn);
      Lease<Rows> lease = loader.prefetcher->next(stream);
      loader.audit.take(lease, stream);
      if (turn % 5 == 0) {
        lease.also_used_on(loader.other.get());
        const std::uint64_t sample = lease.ticket().samples.front();
        for_each(loader.other.get(), 1, [rows = *lease, sample](std::int64_t) {
          if (rows.sample(0) != sample || rows.words(0, 0) != word_of(sample, 0)) std::abort();
        });
      }
      if (turn % 4 != 0) releasers.take(std::move(lease), device);
      releasers.throw_failure();
      // With an on_device source nothing else keeps the host from running ahead of the device.
      if (turn % 128 == 0) detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      flat.reach(i + 1);
    }
  }
  flat.finish();
  for (int device = 0; device < kDevices; ++device) {
    const DeviceGuard guard(device);
    loaders[static_cast<std::size_t>(device)]->audit.finish();
  }
  // They end where device 0 is current.
}

}  // namespace penstock::test
