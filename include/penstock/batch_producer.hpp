// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchProducer: worker threads that fill batches in pinned memory ahead of whoever takes them, in
// order or as they come, under a bound.
//
//   penstock::BatchProducer<Images> producer{layout, sampler, decode_batch, pool, {.workers = 8,
//   .depth = 16}}; while (auto batch = producer.next()) {            //
//   std::optional<HostBatch<Images>>
//     cudaMemcpyAsync(device, batch->data(), batch->bytes(), cudaMemcpyHostToDevice, stream);
//     batch->release_after(stream);
//   }

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <penstock/any_sampler.hpp>
#include <penstock/detail/cores.hpp>
#include <penstock/detail/measure/worker_trace.hpp>
#include <penstock/detail/pipeline/batch_ring.hpp>
#include <penstock/detail/pipeline/failure_log.hpp>
#include <penstock/detail/process.hpp>
#include <penstock/detail/storage/file_reads.hpp>
#include <penstock/error.hpp>
#include <penstock/failure.hpp>
#include <penstock/layout.hpp>
#include <penstock/markers.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/source.hpp>
#include <penstock/stats.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace penstock {

struct ProducerOptions {
  int workers = detail::default_workers();  ///< threads; 0: `next` itself runs the source
  std::size_t depth = 0;  ///< batches that are filled or being filled; 0: workers + 2
  std::uint64_t epochs = 1;
  bool ordered = true;  ///< false: batches come as they are ready, each still once
  FailurePolicy on_failure = FailurePolicy::abort();  ///< of the source
  std::function<void()> on_ready =
      {};  ///< runs on a worker after each batch; must not throw or wait
};

/// A filled batch in a pinned block. Move-only; a moved-from one is empty. May outlive its
/// producer.
template <class Batch>
class HostBatch {
 public:
  /// `samples` were written into `block`, whose tail behind the batch holds the ticket's numbers.
  HostBatch(PinnedBlock block, const Batch& batch, const Ticket& ticket, std::int64_t samples)
      : block_(std::move(block)), batch_(batch), ticket_(ticket), samples_(samples) {}

  const Batch& operator*() const noexcept { return batch_; }
  const Batch* operator->() const noexcept { return &batch_; }
  const Ticket& ticket() const noexcept { return ticket_; }
  /// Samples in the batch: as many as the ticket names, or fewer where the source resized it.
  std::int64_t samples() const noexcept { return samples_; }
  /// The block that the batch's tensors point into.
  std::byte* data() const noexcept { return block_.data(); }

  /// Gives the memory back now; its next writer waits for all that `stream` holds at this moment.
  /// Does not block. The batch and its ticket's samples may not be read afterwards. Throws
  /// CudaError.
  void release_after(cudaStream_t stream) { block_.release_after(stream); }

 private:
  PinnedBlock block_;
  Batch batch_;
  Ticket ticket_;
  std::int64_t samples_;
};

/// `next`, `ready`, `at_end` and `seek` belong to one thread at a time; `stats` and `failures` may
/// be called from any thread. After a fork, the child can do nothing with a producer, but destroy
/// it.
template <class Batch>
class BatchProducer {
 public:
  /// Starts the workers. They use up to `depth` blocks of the pool beside those that were taken,
  /// and work with any pool that has room for one. Sampler and source are called from the workers;
  /// each worker has its own copy of the source. Throws std::invalid_argument.
  BatchProducer(Layout<Batch> layout, AnySampler sampler, AnySource<Batch> source, PinnedPool& pool,
                ProducerOptions options = {});
  BatchProducer(const BatchProducer&) = delete;
  BatchProducer& operator=(const BatchProducer&) = delete;
  /// Asks the sources to stop, joins the workers, drops what was not taken.
  ~BatchProducer() { stop(); }

  /// The next batch; blocks until it is there. nullopt: all epochs are done, or the source said
  /// that there is no more. Throws SourceError (or PoolExhausted, CudaError) in place of a batch
  /// that failed and that the failure policy does not cover; the call after that goes on with the
  /// batch after it. Throws std::logic_error when another thread is in `next`.
  std::optional<HostBatch<Batch>> next();

  /// A batch, or the error in its place, is there: `next` will not wait. Never with 0 workers.
  bool ready() noexcept;
  /// There will be no more batches. Does not wait; with 0 workers it does not know
  /// that the source will say so.
  bool at_end() noexcept;

  /// Stops and joins the workers; ready batches are kept.
  void stop() noexcept;
  /// Drops everything that was made, and goes on at batch `batch` of epoch `epoch`. Joins the
  /// workers and starts them again, with fresh copies of the source.
  void seek(std::uint64_t epoch, std::uint64_t batch);

  /// The number, over all epochs, of the batch behind the last one that `next` returned or threw
  /// for. Of no meaning when batches come unordered.
  std::uint64_t position() const noexcept {
    return options_.workers == 0 ? inline_next_.load(std::memory_order_relaxed) : ring_.head();
  }
  std::uint64_t batches() const noexcept { return batches_; }
  const ProducerOptions& options() const noexcept { return options_; }
  /// Bytes of pinned memory that a batch takes: the layout's, and its sample numbers behind it.
  static std::size_t block_bytes(const Layout<Batch>& layout);
  StageStats stats() const;
  /// The first 256 failures that the policy has dealt with.
  std::vector<Failure> failures() const { return log_.kept(); }
  std::uint64_t skipped() const noexcept { return log_.skipped(); }
  std::uint64_t replaced() const noexcept { return log_.replaced(); }
  /// What the worker with the oldest batch does, for StallError.
  detail::WorkerActivity oldest_activity() const;

 private:
  using Failed = detail::Failed;
  struct Filled {
    HostBatch<Batch> batch;
    std::unique_ptr<Failed> instead_of;
  };
  struct End {};  // the source returned false
  using Item = std::variant<Filled, Failed, End>;

  void start();
  void work(std::size_t worker, const std::stop_token& stop);
  bool enter(detail::WorkerTrace& trace);
  PinnedBlock acquire(detail::WorkerTrace& trace, const std::stop_token& stop);
  /// What one thread fills batches with.
  struct Tools {
    detail::WorkerTrace& trace;
    std::stop_token stop;
    std::optional<AnySource<Batch>> source{};  // its own copy
    std::vector<std::uint64_t> samples{};
  };
  Item make(std::uint64_t number, PinnedBlock block, Tools& tools) noexcept;
  Item attempt(std::uint64_t number, std::uint64_t samples_of, PinnedBlock& block, Tools& tools);
  void replace(Item& item, std::uint64_t number, PinnedBlock& block, Tools& tools);
  Item fill(PinnedBlock& block, const Ticket& ticket, Tools& tools);
  std::size_t bytes(const HostBatch<Batch>& batch) const;
  Ticket write_ticket(std::uint64_t number, std::uint64_t samples_of, const PinnedBlock& block,
                      std::vector<std::uint64_t>& samples) const;
  bool is_dealt_with(Item& item) noexcept;
  HostBatch<Batch> batch_in(Item&& item) const;
  void count_queue() noexcept;
  std::optional<HostBatch<Batch>> next_inline();

  const Layout<Batch> layout_;
  const AnySampler sampler_;
  const AnySource<Batch> source_;
  PinnedPool& pool_;
  const detail::OwnerProcess process_;
  ProducerOptions options_;
  std::uint64_t batches_;  // of an epoch
  std::uint64_t total_;    // of all epochs
  std::size_t block_bytes_;
  int device_;

  detail::BatchRing<Item> ring_;
  detail::FailureLog log_;
  std::atomic_flag in_next_;                         // some thread is
  bool finished_ = false;                            // of the consumer
  std::atomic<std::uint64_t> looks_{0}, queued_{0};  // at the queue; written by the consumer
  std::vector<detail::WorkerTrace> traces_;
  std::atomic<std::uint64_t> inline_next_{0};  // with 0 workers: the next number,
  Tools inline_tools_;                         // and what next() fills it with
  std::vector<std::jthread> workers_;          // last: joined before anything they use goes away
};

}  // namespace penstock

#include <penstock/detail/pipeline/batch_producer.hpp>
