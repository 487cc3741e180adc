// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Prefetcher and its leases call these functions of their Pipeline.

#include <penstock/detail/pipeline/pipeline.hpp>
#include <penstock/detail/pipeline/pipeline_control.hpp>  // IWYU pragma: keep
#include <penstock/detail/pipeline/pipeline_stats.hpp>    // IWYU pragma: keep
#include <penstock/detail/pipeline/pipeline_tune.hpp>     // IWYU pragma: keep
#include <penstock/prefetcher.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

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
PENSTOCK_INLINE bool is_used_on(const LeasedBatch& batch, cudaStream_t stream) noexcept {
  return static_cast<const BatchRecord&>(batch).is_used_on(stream);
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

}  // namespace penstock::detail
