// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceRoute: the part of a pipeline that only a Prefetcher has: blocks of pinned memory, the way
// of their batches to the device, what is measured there and of the consumer, and the tuner.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/detail/cores.hpp>
#include <penstock/detail/memory/host_blocks.hpp>
#include <penstock/detail/observe/consumer_calls.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/timeline.hpp>
#include <penstock/detail/observe/tuner.hpp>
#include <penstock/detail/pipeline/block_parts.hpp>
#include <penstock/detail/pipeline/device_stage.hpp>
#include <penstock/detail/pipeline/record_ring.hpp>
#include <penstock/detail/pipeline/thread_placement.hpp>
#include <penstock/detail/pipeline/tune_plan.hpp>
#include <penstock/detail/sync/time_out.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher_options.hpp>
#include <penstock/producer_options.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Belongs to the device that is current when it is made. Allocates all but the blocks of pinned
/// memory.
struct DeviceRoute {
  DeviceRoute(const BlockLayout& layout, const AnySampler& sampler, const ErasedSource& source,
              TransformStage::Transform transform, PrefetcherOptions its_options)
      : deepens(its_options.host_depth == 0),
        on_device(source.kind == SourceKind::device),
        plan(planned(std::move(its_options), sampler, source, transform.has_value(),
                     bytes_of(layout))),
        placement(std::make_shared<const ThreadPlacement>(
            choose_placement(options.placement, options.numa_node))),
        blocks(options.host_depth, bytes_of(layout), block_options(bytes_of(layout))),
        timeline(options.host_depth + options.device_depth),
        samples(timeline, sampled(transform.has_value()), options.host_depth + options.device_depth,
                options.device_times),
        stage(layout, source.kind, std::move(transform), options, samples),
        setup(make_setup(layout, sampler, source.kind)) {
    if (!plan.most) return;
    tuner.emplace(*plan.most, plan.start, PipelineShape{.setup = setup, .on_device = on_device});
    if (!on_device) stage.use(plan.start.device_depth);
  }
  DeviceRoute(const DeviceRoute&) = delete;
  DeviceRoute& operator=(const DeviceRoute&) = delete;

  /// Returns how many batches are under way at a time, leased ones included.
  std::size_t records() const {
    return on_device ? options.device_depth : options.host_depth + options.device_depth;
  }
  /// Returns the options of those that fill batches.
  ProducerOptions worker_options() const {
    return {.workers = options.workers,
            .depth = options.host_depth,
            .epochs = options.epochs,
            .ordered = options.ordered,
            .on_failure = options.on_failure,
            .read_ahead = options.read_ahead};
  }
  /// Returns how many leases there are.
  std::uint64_t leased() const { return delivered - timeline.sums().batches; }
  /// The thread that takes calls this for each batch.
  void count_delivery(Ticks taken) {
    if (delivered == 0) first_taken = taken;
    add_alone(delivered, std::uint64_t{1});
  }
  /// Makes the stream wait until the batch is in its slot. A block's event is recorded anew for its
  /// next batch, but then somebody has seen that this copy is done.
  void make_wait(cudaStream_t stream, const BatchRecord& record) const {
    if (record.copy != 0 && blocks.is_done(record.copy)) return;
    check(cudaStreamWaitEvent(stream, record.ready, cudaEventWaitDefault), "cudaStreamWaitEvent");
  }
  /// Returns the option, where 0 stands for none.
  std::chrono::milliseconds stall_timeout() const {
    constexpr auto kEver = std::chrono::milliseconds::max();
    return options.stall_timeout.count() == 0 ? kEver : options.stall_timeout;
  }

  const bool deepens;    ///< host_depth is not set
  const bool on_device;  ///< the source writes device memory
  const PipelinePlan plan;
  const PrefetcherOptions& options = plan.options;
  const std::shared_ptr<const ThreadPlacement> placement;
  HostBlocks blocks;  ///< none is allocated where the source writes the slots
  Timeline timeline;
  DeviceSamples samples;
  DeviceStage stage;
  const PipelineSetup setup;  ///< as stats() tells it, but for a second stream
  const Ticks constructed = ticks();
  std::atomic<Ticks> first_taken{0};        ///< when next() first returned a batch; 0: never yet
  std::atomic<std::uint64_t> delivered{0};  ///< batches that next() has returned
  std::atomic<std::uint64_t> queued{0};     ///< sum over its calls: how many were staged then
  std::atomic<bool> second_stream{false};   ///< A lease was also used on one.
  ConsumerCalls calls;
  std::optional<Tuner> tuner;

 private:
  /// The size of a block. All else of a batch is in its record.
  static std::size_t bytes_of(const BlockLayout& layout) {
    return std::max<std::size_t>(1, layout.bytes());
  }
  DeviceSamples::Kind sampled(bool transforms) const {
    if (on_device) return DeviceSamples::Kind::on_device;
    return transforms ? DeviceSamples::Kind::transforms : DeviceSamples::Kind::copies;
  }
  static PipelinePlan planned(PrefetcherOptions options, const AnySampler& sampler,
                              const ErasedSource& source, bool transforms, std::size_t block);
  PinnedPoolOptions block_options(std::size_t block) const;
  PipelineSetup make_setup(const BlockLayout& layout, const AnySampler& sampler,
                           SourceKind kind) const;
};

PENSTOCK_INLINE PipelinePlan DeviceRoute::planned(PrefetcherOptions options,
                                                  const AnySampler& sampler,
                                                  const ErasedSource& source, bool transforms,
                                                  std::size_t block) {
  require_time_out("stall_timeout", options.stall_timeout);
  if (transforms && source.kind == SourceKind::device)
    throw std::invalid_argument(
        "an on_device source writes the slots itself, so a DeviceTransform has nothing to read: "
        "let the source queue the transform's work on its stream");
  return detail::plan(std::move(options), {source.kind, sampler.is_stream(), block});
}

/// Throws PoolExhausted where host_depth blocks are more than the cap.
PENSTOCK_INLINE PinnedPoolOptions DeviceRoute::block_options(std::size_t block) const {
  const std::size_t cap = host_bytes_limit(options);
  if (block > cap / options.host_depth)
    throw PoolExhausted(std::to_string(options.host_depth) + " batches of " +
                            std::to_string(block) +
                            " bytes do not fit the cap on host memory: lower host_depth (unless "
                            "set, a little more than device_depth) or the batch size, or raise "
                            "max_host_bytes",
                        block * options.host_depth, 0, cap);
  return {
      .flags = options.host_flags, .numa_node = options.numa_node, .upstream = options.host_memory};
}

PENSTOCK_INLINE PipelineSetup DeviceRoute::make_setup(const BlockLayout& layout,
                                                      const AnySampler& sampler,
                                                      SourceKind kind) const {
  const bool unbounded = sampler.is_stream();
  PipelineSetup made{
      .unbounded = unbounded,
      .per_sample = kind == SourceKind::sample,
      .transforms = stage.transforms(),
      .ordered = options.ordered,
      .batch_size = layout.batch_size(),
      .deepens = deepens,
      .cores = usable_cores(),
      .batches = unbounded ? 0 : saturated_product(sampler.batches(), options.epochs),
      .host_limit = host_bytes_limit(options),
      .device_limit = stage.bytes_limit()};
  bool any_float = false;
  for (const BlockLayout::Field& field : layout.fields()) {
    using Element = BlockLayout::Element;
    const auto values = field.is_ragged() ? field.capacity : layout.batch_size();
    const std::size_t bytes = static_cast<std::size_t>(values) * field.sample_bytes;
    const bool halves = field.element == Element::integer && field.element_bytes >= 4;
    const bool floats = field.element == Element::floating;
    any_float |= floats && field.element_bytes < 8;
    made.doubles |= floats && field.element_bytes == 8;
    made.batch_bytes += bytes;
    made.as_uint8_bytes += floats ? bytes / field.element_bytes : bytes;
    made.as_half_integers_bytes += halves ? bytes / 2 : bytes;
  }
  made.doubles &= !any_float;
  return made;
}

}  // namespace penstock::detail
