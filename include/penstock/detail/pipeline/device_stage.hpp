// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceStage: brings filled batches into device slots: by a copy on the copy stream, and a
// DeviceTransform if there is one; or not at all, where the source has written the slot.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/name_number.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/detail/pipeline/block_parts.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/held_back.hpp>
#include <penstock/detail/pipeline/transform_stage.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/markers.hpp>
#include <penstock/prefetcher_options.hpp>
#include <penstock/stats.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Allocates on the current device.
class DeviceStage {
 public:
  DeviceStage(const BlockLayout& layout, SourceKind kind, TransformStage::Transform transform,
              const PrefetcherOptions& options, DeviceSamples& samples)
      : layout_(layout),
        samples_(samples),
        copy_stream_(options.copy_priority),
        transform_(layout_, std::move(transform), copy_stream_.get(), options.device_memory),
        arena_(transform_.make_slots(options.device_depth)),
        held_back_(options.device_depth) {
    if (kind == SourceKind::device)
      targets_.emplace(arena_, samples_, static_cast<std::size_t>(options.workers),
                       options.copy_priority, number_.name("penstock source"));
  }
  DeviceStage(const DeviceStage&) = delete;
  DeviceStage& operator=(const DeviceStage&) = delete;

  const DeviceArena& arena() const { return arena_; }
  /// Returns what an on_device source writes, else nullptr.
  DeviceTargets* targets() { return targets_ ? &*targets_ : nullptr; }

  bool transforms() const { return transform_.transforms(); }

  std::size_t bytes() const {
    return arena_.slots() * arena_.slot_bytes() + transform_.passage_bytes();
  }
  /// The same, and what is free now. 0: unknown, as it is of an upstream.
  std::size_t bytes_limit() const noexcept {
    if (transform_.has_upstream()) return 0;
    const CaptureModeGuard guard;
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) return bytes() + free;
    cudaGetLastError();
    return 0;
  }

  /// Gives a record what a batch needs on its way to the device.
  void equip(BatchRecord& record) const {
    constexpr std::size_t kConsumers = 8;  // With more of them, a lease allocates.
    record.consumers.reserve(kConsumers);
    if (targets_ || transforms()) record.written.emplace();
    if (transforms()) record.output.emplace(transform_.slot_layout());
  }

  // ---- On one thread at a time

  /// Queues the copy of a filled batch into a slot, and the transform. (An on_device source has
  /// written the slot.) False: there is no slot now. If the search for a slot throws, it is tried
  /// again. If the copy or the transform fails, the record has the error in place of its batch.
  bool stage(BatchRecord& record) {
    if (!targets_ && !take_slot(record)) return false;
    record.slot = record.memory.slot.index();
    try {
      if (targets_)
        record.ready = record.written->get();
      else
        copy(record);
      record.times.staged = ticks();
      record.order = next_order();
      order_.store(record.order + 1, std::memory_order_relaxed);
      samples_.hand_in(std::move(record.sample), record.order, record.times.staged);
    } catch (...) {
      record.throw_instead();
    }
    return true;
  }

  /// The order of the next batch that is staged (see Timeline). Only a thread that has paused the
  /// staging calls this.
  std::uint64_t next_order() const { return order_.load(std::memory_order_relaxed); }

  // ---- On any thread

  /// So many slots are in use from now on, of those that copies fill. Then there may be one for the
  /// next copy.
  void use(std::size_t slots) { held_back_.want(arena_.slots() - slots); }

  /// Sets the statistics of this stage.
  void add_to(Stats& stats, const DeviceSums& sums) const {
    stats.device_bytes = bytes();
    if (targets_) return;
    stats.copy = sums.copy;
    stats.copy.batches = next_order();
    stats.copy.bytes = copied_bytes_.load(std::memory_order_relaxed);
    stats.copy.capacity = arena_.slots();
    if (!transforms()) return;
    stats.transform = sums.transform;
    stats.transform.batches = next_order();
    stats.transform.bytes = next_order() * transform_.slot_bytes();
  }

 private:
  /// A slot for the next copy: the copy stream waits for its last readers. False: not now.
  bool take_slot(BatchRecord& record) {
    if (!lacks_slot_) record.sample = samples_.want(copy_stream_.get(), record.times.filled);
    while (true) {
      DeviceSlot free = arena_.try_acquire(copies_);
      lacks_slot_ = !free;
      if (!free) return false;
      if (held_back_.takes(free)) continue;
      record.memory.slot = std::move(free);
      return true;
    }
  }

  void copy(BatchRecord& record) {
    const ScopedRange range(markers::copy, record.ticket.batch);
    const cudaStream_t stream = copy_stream_.get();
    const HostBlocks::Block& block = *record.memory.host;
    record.ready = block.copied.get();
    samples_.begin(record.sample);
    record.copy = block.owner.copy(record.memory.host.release()->index, copies_, [&] {
      const std::size_t bytes = queue_copies(block.memory.data(), record.batch, record.rows,
                                             layout_, transform_.target(record), stream);
      add_alone(copied_bytes_, std::uint64_t{bytes});
      samples_.arrive(record.sample);  // The consumer waits for what comes behind it.
    });
    transform_.apply(record, stream);
    samples_.end(record.sample);
    if (!record.written) return;
    record.written->record(stream);
    record.ready = record.written->get();
    record.copy = 0;
  }

  const BlockLayout layout_;
  DeviceSamples& samples_;
  Stream copy_stream_;
  const ResolvedStream copies_{copy_stream_.get(), current_device()};
  const NameNumber<DeviceStage> number_;
  markers::StreamName copy_stream_name_{copy_stream_.get(),
                                        number_.name("penstock copies").c_str()};
  const TransformStage transform_;
  DeviceArena arena_;
  std::optional<DeviceTargets> targets_;
  HeldBack<DeviceSlot> held_back_;
  bool lacks_slot_ = false;              // The first filled batch does.
  std::atomic<std::uint64_t> order_{0};  // of the next batch
  std::atomic<std::uint64_t> copied_bytes_{0};
};

}  // namespace penstock::detail
