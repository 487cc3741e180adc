// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchProducer: worker threads that fill batches in pinned memory ahead of the thread that takes
// them, up to a bound, in order or as they become ready.
//
//   penstock::BatchProducer<Images> producer{
//       layout, {.samples = records.size(), .shuffle = true}, source, pool, {.workers = 8}};
//   while (auto batch = producer.next())                        // std::optional<HostBatch<Images>>
//     batch->copy_to(device, stream);                           // layout.bytes() of device memory

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/any_sampler.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/detail/pipeline/block_batch.hpp>
#include <penstock/detail/pipeline/pipeline_handle.hpp>
#include <penstock/failure.hpp>
#include <penstock/layout.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/producer_options.hpp>
#include <penstock/source.hpp>
#include <penstock/stats.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

PipelineHandle make_producer(const BlockLayout& layout, AnySampler sampler, ErasedSource source,
                             PinnedPool& pool, ProducerOptions options);
/// Shared with batches, which may outlive the producer.
const std::shared_ptr<const BlockLayout>& layout(const Pipeline& pipeline) noexcept;
std::optional<BlockBatch> next_filled(Pipeline& pipeline);
bool ready(Pipeline& pipeline) noexcept;
bool at_end(Pipeline& pipeline) noexcept;
void stop_and_join(Pipeline& pipeline) noexcept;
void seek(Pipeline& pipeline, std::uint64_t epoch, std::uint64_t batch);
std::uint64_t position(const Pipeline& pipeline) noexcept;
std::uint64_t batches(const Pipeline& pipeline) noexcept;
const ProducerOptions& producer_options(const Pipeline& pipeline) noexcept;
StageStats source_stats(const Pipeline& pipeline);
std::uint64_t skipped(const Pipeline& pipeline) noexcept;
std::uint64_t replaced(const Pipeline& pipeline) noexcept;

}  // namespace detail

/// A filled batch in a pinned block. Move-only; a moved-from batch is empty. It may outlive its
/// producer.
template <class Batch>
class HostBatch {
 public:
  HostBatch(detail::BlockBatch host, std::shared_ptr<const detail::BlockLayout> layout)
      : host_(std::move(host)), layout_(std::move(layout)) {}

  // The next three throw std::logic_error after copy_to, release_after or a move.

  /// The batch: views of pinned host memory.
  const Batch& operator*() const { return *static_cast<const Batch*>(held().batch); }
  /// The same.
  const Batch* operator->() const { return static_cast<const Batch*>(held().batch); }
  /// Epoch, batch and sample numbers; valid until the memory is released.
  const Ticket& ticket() const { return held().ticket; }
  /// Number of samples in the batch: that of the ticket, or less if the source resized the batch.
  std::int64_t samples() const noexcept { return host_.rows; }
  /// The block that the batch's tensors point into.
  std::byte* data() const noexcept { return host_.block.data(); }

  /// Queues on `stream` the copy of the batch to `device`, which has room for the layout's bytes(),
  /// and releases the memory after it, also if a call fails. If the batch has fewer samples than
  /// the batch size, only these are copied, each field to its place. Does not block. The batch and
  /// its ticket's samples may not be read afterwards. Throws CudaError; std::logic_error, and does
  /// nothing, for a stream that is being captured and for a batch that was released.
  [[gnu::always_inline]] void copy_to(std::byte* device, StreamRef stream) {
    host_.copy_to(*layout_, device, detail::named(stream));
  }

  /// Releases the memory: its next writer waits for the work that `stream` holds now. Does not
  /// block. The batch and its ticket's samples may not be read afterwards. Throws CudaError;
  /// std::logic_error for a stream that is being captured: the batch is not released then. If
  /// something may throw between your copy and this call, use copy_to instead.
  [[gnu::always_inline]] void release_after(StreamRef stream) { host_.block.release_after(stream); }

 private:
  const detail::BlockBatch& held() const {
    if (!host_.block) [[unlikely]]
      throw std::logic_error(
          "HostBatch: its memory was released or moved from, and may hold another batch: read the "
          "batch before");
    return host_;
  }

  detail::BlockBatch host_;
  std::shared_ptr<const detail::BlockLayout> layout_;
};

/// Workers that fill batches in pinned memory ahead of the thread that takes them. One thread at a
/// time may call `next`, `ready`, `at_end` and `seek`; any thread may call `stop`, `stats` and
/// `failures`.
/// The workers run on the cores of the thread that starts them: only a Prefetcher, which knows the
/// device of the batches, has a Placement.
/// A forked child process may only destroy a producer.
template <class Batch>
class BatchProducer {
 public:
  /// Starts the workers. They use up to `depth` blocks of the pool, not counting batches that were
  /// taken; a pool with room for one block suffices. They wait for memory as long as it takes.
  /// `sampler` is SamplerOptions, or converts to AnySampler; `source` converts to AnySource<Batch>.
  /// Both run on the workers; each worker has its own copy of the source. SamplerOptions become a
  /// Sampler, with the batch size of the layout if they have none. Throws std::invalid_argument,
  /// also for an on_device source, which only a Prefetcher takes, and for a sampler that continues
  /// a run behind its end (see ProducerOptions::epochs).
  template <class AnySampler, class AnySource>
  BatchProducer(const Layout<Batch>& layout, AnySampler&& sampler, AnySource&& source,
                PinnedPool& pool, ProducerOptions options = {})
      : pipeline_(detail::make_producer(
            layout.erased().for_source(), detail::as_sampler(std::forward<AnySampler>(sampler)),
            detail::as_source<Batch>(std::forward<AnySource>(source)).erased(), pool,
            std::move(options))) {}
  /// The same.
  template <class AnySource>
  BatchProducer(const Layout<Batch>& layout, SamplerOptions sampler, AnySource&& source,
                PinnedPool& pool, ProducerOptions options = {})
      : BatchProducer(layout,
                      detail::make_sampler(sampler, layout.erased().for_source().batch_size()),
                      std::forward<AnySource>(source), pool, std::move(options)) {}
  BatchProducer(const BatchProducer&) = delete;
  BatchProducer& operator=(const BatchProducer&) = delete;
  /// Requests stop from the sources, joins the workers, and drops batches that were not taken. One
  /// thread may be inside `next`: it gets a batch that is ready, or nullopt, and the destructor
  /// waits until it has left. No call may begin meanwhile: to end a loop of another thread, call
  /// `stop` and join that thread first. If a function that a worker has called (a source, a
  /// sampler) destroys its own producer, memory and thread are leaked, and a line on stderr says
  /// so; if it calls std::exit while the producer is static, the process ends with that status.
  ~BatchProducer() {
    if (pipeline_ != nullptr) detail::close(pipeline_);
  }

  /// The next batch; blocks until it is ready. nullopt: all epochs are done, or the source has said
  /// that there is no more data. Throws SourceError (or PoolExhausted, CudaError) in place of a
  /// batch that failed and that the failure policy does not cover; the next call returns the batch
  /// after it. Throws PoolExhausted, too, if it has waited for the time-out of the pool, all
  /// batches that were filled have been taken, and the pool has no memory for another one: no batch
  /// is lost then, and the next call waits again. A batch that is still held may have the only
  /// block that there is: release it first. Throws WorkerError once for each worker whose
  /// source could not be made, and at every call if no worker has a source. Throws std::logic_error
  /// if another thread is inside `next`.
  std::optional<HostBatch<Batch>> next() {
    auto layout = detail::layout(*pipeline_);  // After the next line the producer may be gone.
    std::optional<detail::BlockBatch> host = detail::next_filled(*pipeline_);
    if (!host) return std::nullopt;
    return HostBatch<Batch>(std::move(*host), std::move(layout));
  }

  /// Whether a batch, or the error in its place, is ready: `next` will not wait.
  bool ready() noexcept { return detail::ready(*pipeline_); }
  /// Whether there will be no more batches. Does not wait.
  bool at_end() noexcept { return detail::at_end(*pipeline_); }

  /// Stops and joins the workers. Batches that are ready are kept: `next` returns them, then
  /// nullopt, also on a thread that waits in it now. A batch that a per_sample source has only
  /// begun is dropped, and the data end before it. Called by a source, it joins nobody. Any thread.
  void stop() noexcept { detail::stop_and_join(*pipeline_); }
  /// Drops all batches that were not taken, and continues at batch `batch` of epoch `epoch`; at or
  /// behind the end of the run, `next` returns nullopt. Joins the workers and starts them again,
  /// with new copies of the source. Throws std::logic_error if a source calls it.
  void seek(std::uint64_t epoch, std::uint64_t batch) { detail::seek(*pipeline_, epoch, batch); }

  /// The number, over all epochs, of the batch after the last one that `next` returned or threw
  /// for. Meaningless if `ordered` is false.
  std::uint64_t position() const noexcept { return detail::position(*pipeline_); }
  /// Batches of one epoch on this rank.
  std::uint64_t batches() const noexcept { return detail::batches(*pipeline_); }
  /// The options, where 0 is replaced by what it stands for.
  const ProducerOptions& options() const noexcept { return detail::producer_options(*pipeline_); }
  /// Bytes of pinned memory that a batch takes: those of the layout, of its sample numbers, and of
  /// the Batch object.
  static std::size_t block_bytes(const Layout<Batch>& layout) {
    return detail::block_bytes(layout.erased().for_source());
  }
  /// How long the workers ran the source and waited, in sum, since the construction.
  StageStats stats() const { return detail::source_stats(*pipeline_); }
  /// The first 256 failures that the failure policy handled.
  std::vector<Failure> failures() const { return detail::failures(*pipeline_); }
  /// Batches, or samples of a per_sample source, that the failure policy handled.
  std::uint64_t skipped() const noexcept { return detail::skipped(*pipeline_); }
  /// The same for those that it replaced.
  std::uint64_t replaced() const noexcept { return detail::replaced(*pipeline_); }

 private:
  detail::PipelineHandle pipeline_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/batch_producer.hpp>
#endif
