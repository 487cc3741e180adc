// SPDX-License-Identifier: Apache-2.0
#pragma once

// A BatchProducer calls these functions of its Pipeline.

#include <penstock/batch_producer.hpp>
#include <penstock/detail/pipeline/pipeline.hpp>
#include <penstock/detail/pipeline/pipeline_control.hpp>  // IWYU pragma: keep
#include <penstock/detail/pipeline/pipeline_stats.hpp>    // IWYU pragma: keep
#include <penstock/detail/pipeline/pipeline_tune.hpp>     // IWYU pragma: keep

namespace penstock::inline PENSTOCK_ABI::detail {

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
