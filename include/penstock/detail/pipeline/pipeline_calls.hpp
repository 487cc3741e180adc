// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the public headers call of a Pipeline.

#include <penstock/detail/pipeline/pipeline.hpp>

namespace penstock::detail {

// ---- Both ---------------------------------------------------------------------------------------

PENSTOCK_INLINE void close(PipelineHandle& pipeline) noexcept {
  if (pipeline->forked() || !pipeline->close())
    leak(std::move(pipeline));
  else
    pipeline.reset();
}
PENSTOCK_INLINE std::vector<Failure> failures(const Pipeline& pipeline) {
  return pipeline.failure_log().kept();
}

// ---- A Prefetcher -------------------------------------------------------------------------------

PENSTOCK_INLINE PipelineHandle make_prefetcher(const BlockLayout& layout, AnySampler sampler,
                                               ErasedSource source,
                                               std::optional<ErasedTransform> transform,
                                               PrefetcherOptions options) {
  auto route = std::make_unique<DeviceRoute>(layout, sampler, source, std::move(transform),
                                             std::move(options));
  ProducerOptions workers = route->worker_options();
  auto pipeline = std::make_shared<Pipeline>(layout, std::move(sampler), std::move(source),
                                             std::move(route), nullptr, std::move(workers));
  pipeline->start();
  return pipeline;
}

PENSTOCK_INLINE LeasedBatch* next(Pipeline& pipeline, cudaStream_t consumer,
                                  PipelineHandle& owner) {
  return pipeline.next(consumer, owner);
}
PENSTOCK_INLINE void also_use(Pipeline& pipeline, LeasedBatch& batch, cudaStream_t stream) {
  pipeline.also_use(static_cast<BatchRecord&>(batch), stream);
}
PENSTOCK_INLINE bool is_used_on(const Pipeline& pipeline, const LeasedBatch& batch,
                                cudaStream_t stream) noexcept {
  return pipeline.is_used_on(static_cast<const BatchRecord&>(batch), stream);
}
PENSTOCK_INLINE void end_lease(PipelineHandle pipeline, LeasedBatch& batch) noexcept {
  if (pipeline->forked())
    leak(std::move(pipeline));
  else
    pipeline->end_lease(static_cast<BatchRecord&>(batch), true);
}
PENSTOCK_INLINE void release(PipelineHandle& pipeline, LeasedBatch*& batch) {
  if (pipeline->forked())
    leak(std::move(pipeline));
  else if (!pipeline->end_lease(static_cast<BatchRecord&>(*batch), false))
    throw_captured("Lease::release");
  pipeline.reset();
  batch = nullptr;
}
PENSTOCK_INLINE void throw_empty_lease() {
  throw std::logic_error(
      "Lease: it holds no batch: it was released or moved from, or next() returned it because all "
      "epochs are done");
}
PENSTOCK_INLINE void stop(Pipeline& pipeline) noexcept {
  pipeline.stop();
}
PENSTOCK_INLINE State state(const Pipeline& pipeline) {
  return pipeline.state();
}
PENSTOCK_INLINE void restore(Pipeline& pipeline, const State& state) {
  pipeline.restore(state);
}
PENSTOCK_INLINE Stats stats(Pipeline& pipeline) {
  return pipeline.stats();
}

// ---- A BatchProducer ----------------------------------------------------------------------------

PENSTOCK_INLINE PipelineHandle make_producer(const BlockLayout& layout, AnySampler sampler,
                                             ErasedSource source, PinnedPool& pool,
                                             ProducerOptions options) {
  if (source.kind == SourceKind::device)
    throw std::invalid_argument(
        "BatchProducer fills page-locked memory: give an on_device source to a Prefetcher");
  auto pipeline = std::make_shared<Pipeline>(layout, std::move(sampler), std::move(source), nullptr,
                                             &pool, std::move(options));
  pipeline->start();
  return pipeline;
}

PENSTOCK_INLINE const std::shared_ptr<const BlockLayout>& layout(
    const Pipeline& pipeline) noexcept {
  return pipeline.layout();
}
PENSTOCK_INLINE std::optional<BlockBatch> next_filled(Pipeline& pipeline) {
  return pipeline.next_filled();
}
PENSTOCK_INLINE bool ready(Pipeline& pipeline) noexcept {
  return pipeline.ready();
}
PENSTOCK_INLINE bool at_end(Pipeline& pipeline) noexcept {
  return pipeline.at_end();
}
PENSTOCK_INLINE void stop_and_join(Pipeline& pipeline) noexcept {
  pipeline.stop_and_join();
}
PENSTOCK_INLINE void seek(Pipeline& pipeline, std::uint64_t epoch, std::uint64_t batch) {
  pipeline.seek(epoch, batch);
}
PENSTOCK_INLINE std::uint64_t position(const Pipeline& pipeline) noexcept {
  return pipeline.position();
}
PENSTOCK_INLINE std::uint64_t batches(const Pipeline& pipeline) noexcept {
  return pipeline.batches();
}
PENSTOCK_INLINE const ProducerOptions& producer_options(const Pipeline& pipeline) noexcept {
  return pipeline.options();
}
PENSTOCK_INLINE StageStats source_stats(const Pipeline& pipeline) {
  return pipeline.source_stats();
}
PENSTOCK_INLINE std::uint64_t skipped(const Pipeline& pipeline) noexcept {
  return pipeline.failure_log().skipped();
}
PENSTOCK_INLINE std::uint64_t replaced(const Pipeline& pipeline) noexcept {
  return pipeline.failure_log().replaced();
}

}  // namespace penstock::detail
