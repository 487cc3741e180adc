// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchProducer: worker threads that fill batches in pinned memory ahead of whoever takes them, in
// order or as they come, under a bound.
//
//   penstock::BatchProducer<Images> producer{layout, sampler, source, pool, {.workers = 8}};
//   while (auto batch = producer.next())                        // std::optional<HostBatch<Images>>
//     batch->copy_to(device, stream);                           // layout.bytes() of device memory

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <penstock/any_sampler.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/failure.hpp>
#include <penstock/layout.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/source.hpp>
#include <penstock/stats.hpp>
#include <utility>
#include <vector>

namespace penstock {

namespace detail {

/// One for each core that this process may use, but one that is left for the thread that feeds the
/// device; at least 1.
int default_workers();

}  // namespace detail

struct ProducerOptions {
  int workers = detail::default_workers();  ///< threads that run the source; 0: one
  /// Batches that are filled or being filled. 0: workers + 2, and 4 for a per_sample source.
  std::size_t depth = 0;
  std::uint64_t epochs = 1;  ///< at least 1
  bool ordered = true;       ///< false: batches come as they are ready, each still once
  FailurePolicy on_failure = FailurePolicy::abort();  ///< of the source
  std::function<void()> on_ready =
      {};  ///< runs on a worker after each batch; must not throw or wait
};

namespace detail {

struct WrittenSlot;
/// Gives the device slot back.
struct ReleaseSlot {
  void operator()(WrittenSlot* slot) const noexcept;
};

/// A filled batch, its type erased. Of host memory: `batch` and the
/// ticket's samples lie in the block, behind what is copied to the device. Of device memory: all is
/// in `slot`.
struct FilledBatch {
  PinnedBlock block;
  std::unique_ptr<WrittenSlot, ReleaseSlot> slot;
  void* batch = nullptr;
  Ticket ticket;
  std::int64_t samples = 0;
};

/// Queues the copy of what a batch uses, and gives its block back behind it, also where a call
/// fails.
void copy_to(FilledBatch& batch, const BlockLayout& layout, std::byte* device, cudaStream_t stream);

/// What a BatchProducer is made of: the same calls, whatever the type of the batches.
class AnyProducer {
 public:
  virtual ~AnyProducer() = default;
  virtual std::optional<FilledBatch> next() = 0;
  /// Lives as long as batches do that may outlive the producer.
  virtual const std::shared_ptr<const BlockLayout>& layout() const noexcept = 0;
  virtual bool ready() noexcept = 0;
  virtual bool at_end() noexcept = 0;
  virtual void stop() noexcept = 0;
  virtual void seek(std::uint64_t epoch, std::uint64_t batch) = 0;
  virtual std::uint64_t position() const noexcept = 0;
  virtual std::uint64_t batches() const noexcept = 0;
  virtual const ProducerOptions& options() const noexcept = 0;
  virtual StageStats stats() const = 0;
  virtual std::vector<Failure> failures() const = 0;
  virtual std::uint64_t skipped() const noexcept = 0;
  virtual std::uint64_t replaced() const noexcept = 0;
};

std::unique_ptr<AnyProducer> make_producer(const BlockLayout& layout, AnySampler sampler,
                                           ErasedSource source, PinnedPool& pool,
                                           ProducerOptions options);
/// Bytes of a block that a batch takes.
std::size_t block_bytes(const BlockLayout& layout);

}  // namespace detail

/// A filled batch in a pinned block. Move-only; a moved-from one is empty. May outlive its
/// producer.
template <class Batch>
class HostBatch {
 public:
  HostBatch(detail::FilledBatch host, std::shared_ptr<const detail::BlockLayout> layout)
      : host_(std::move(host)), layout_(std::move(layout)) {}

  const Batch& operator*() const noexcept { return *static_cast<const Batch*>(host_.batch); }
  const Batch* operator->() const noexcept { return static_cast<const Batch*>(host_.batch); }
  const Ticket& ticket() const noexcept { return host_.ticket; }
  /// Samples in the batch: as many as the ticket names, or fewer where the source resized it.
  std::int64_t samples() const noexcept { return host_.samples; }
  /// The block that the batch's tensors point into.
  std::byte* data() const noexcept { return host_.block.data(); }

  /// Queues the copy of the batch to `device`, which has room for the layout's bytes(), on
  /// `stream`, and gives the memory back behind it, also where a call fails. Of a short batch only
  /// the samples it has are copied, each field to its place. Does not block. The batch and its
  /// ticket's samples may not be read afterwards. Throws CudaError; std::logic_error, and does
  /// nothing, for a stream that is being captured and for a batch that was released.
  [[gnu::always_inline]] void copy_to(std::byte* device, cudaStream_t stream) {
    detail::copy_to(host_, *layout_, device, detail::named(stream));
  }

  /// Gives the memory back now; its next writer waits for all that `stream` holds at this moment.
  /// Does not block. The batch and its ticket's samples may not be read afterwards. Throws
  /// CudaError; std::logic_error for a stream that is being captured, and the batch stays. Where
  /// nothing can throw between the copy and this; else copy_to.
  [[gnu::always_inline]] void release_after(cudaStream_t stream) {
    host_.block.release_after(stream);
  }

 private:
  detail::FilledBatch host_;
  std::shared_ptr<const detail::BlockLayout> layout_;
};

/// `next`, `ready`, `at_end` and `seek` belong to one thread at a time; `stats` and `failures` may
/// be called from any thread. After a fork, the child can do nothing with a producer, but destroy
/// it.
template <class Batch>
class BatchProducer {
 public:
  /// Starts the workers. They use up to `depth` blocks of the pool beside those that were taken,
  /// and work with any pool that has room for one. Sampler and source are called from the workers;
  /// each worker has its own copy of the source. Throws std::invalid_argument, also for an
  /// on_device source: that is for a Prefetcher.
  BatchProducer(const Layout<Batch>& layout, AnySampler sampler, AnySource<Batch> source,
                PinnedPool& pool, ProducerOptions options = {})
      : producer_(detail::make_producer(layout.erased(), std::move(sampler),
                                        std::move(source).erased(), pool, std::move(options))) {}
  BatchProducer(const BatchProducer&) = delete;
  BatchProducer& operator=(const BatchProducer&) = delete;
  /// Asks the sources to stop, joins the workers, drops what was not taken.
  ~BatchProducer() = default;

  /// The next batch; blocks until it is there. nullopt: all epochs are done, or the source said
  /// that there is no more. Throws SourceError (or PoolExhausted, CudaError) in place of a batch
  /// that failed and that the failure policy does not cover; the call after that goes on with the
  /// batch after it. Throws WorkerError, once for each worker that has no source, and at every call
  /// where no worker has one. Throws std::logic_error when another thread is in `next`.
  std::optional<HostBatch<Batch>> next() {
    std::optional<detail::FilledBatch> host = producer_->next();
    if (!host) return std::nullopt;
    return HostBatch<Batch>(std::move(*host), producer_->layout());
  }

  /// A batch, or the error in its place, is there: `next` will not wait.
  bool ready() noexcept { return producer_->ready(); }
  /// There will be no more batches. Does not wait.
  bool at_end() noexcept { return producer_->at_end(); }

  /// Stops and joins the workers. Batches that are ready are kept. A batch that a per_sample source
  /// has begun is dropped, and the data end there.
  void stop() noexcept { producer_->stop(); }
  /// Drops everything that was made, and goes on at batch `batch` of epoch `epoch`. Joins the
  /// workers and starts them again, with fresh copies of the source.
  void seek(std::uint64_t epoch, std::uint64_t batch) { producer_->seek(epoch, batch); }

  /// The number, over all epochs, of the batch behind the last one that `next` returned or threw
  /// for. Of no meaning when batches come unordered.
  std::uint64_t position() const noexcept { return producer_->position(); }
  std::uint64_t batches() const noexcept { return producer_->batches(); }
  const ProducerOptions& options() const noexcept { return producer_->options(); }
  /// Bytes of pinned memory that a batch takes: the layout's, and behind them its sample numbers
  /// and the batch itself.
  static std::size_t block_bytes(const Layout<Batch>& layout) {
    return detail::block_bytes(layout.erased());
  }
  StageStats stats() const { return producer_->stats(); }
  /// The first 256 failures that the policy has dealt with.
  std::vector<Failure> failures() const { return producer_->failures(); }
  /// Batches, or samples of a per_sample source, that the policy has dealt with.
  std::uint64_t skipped() const noexcept { return producer_->skipped(); }
  std::uint64_t replaced() const noexcept { return producer_->replaced(); }

 private:
  std::unique_ptr<detail::AnyProducer> producer_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/batch_producer.hpp>
#endif
