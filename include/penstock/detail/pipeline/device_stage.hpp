// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceStage: brings filled batches into device slots: by a copy on the copy stream, and a
// DeviceTransform if there is one; or not at all, where the source has written the slot.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/observe/copy_watch.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/name_number.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/detail/pipeline/block_batch.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/held_back.hpp>
#include <penstock/detail/pipeline/staged_queue.hpp>
#include <penstock/detail/pipeline/transform_stage.hpp>
#include <penstock/detail/pipeline/tuner.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/markers.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/stats.hpp>
#include <utility>
#include <vector>

namespace penstock::detail {

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
        held_back_(options.device_depth),
        watch_(kind == SourceKind::device ? 0 : options.host_depth + options.device_depth,
               options.device_times, transform_.transforms()) {
    if (kind == SourceKind::device)
      targets_.emplace(arena_, samples_, static_cast<std::size_t>(options.workers),
                       options.copy_priority, number_.name("penstock source"));
    slots_.reserve(options.device_depth);
    for (std::size_t i = 0; i < options.device_depth; ++i)
      slots_.emplace_back(transform_.slot_layout(), i);
  }
  DeviceStage(const DeviceStage&) = delete;
  DeviceStage& operator=(const DeviceStage&) = delete;

  const DeviceArena& arena() const { return arena_; }
  /// Of an on_device source, else nullptr.
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

  // ---- On one thread at a time

  /// There is a slot for the next batch: one that was reserved, behind whose last readers the copy
  /// stream waits, or the batch's own. False: not now.
  bool reserve() {
    if (targets_) return true;
    while (!reserved_) {
      reserved_ = arena_.try_acquire(copies_);
      if (!reserved_) {
        watch_.lack_slot();
        return false;
      }
      if (held_back_.takes(*reserved_)) reserved_.reset();
    }
    return true;
  }

  /// Queues the copy of a batch into its slot, and the transform. An error, in `error` or new,
  /// takes the place and the slot of its batch: so there are never more errors than slots. The
  /// record may have another batch then.
  Staged& stage(BatchRecord& record, std::exception_ptr&& error) {
    // Once the batch is staged, another worker may have its slot.
    WrittenSlot* const written = record.memory.slot.get();
    Staged& staged = occupy(std::move(record.memory.slot));
    staged.order = order_++;
    staged.times = record.times;
    staged.error = std::move(error);
    if (staged.error) return staged;
    std::swap(staged.samples, record.numbers);  // Both have room for any batch's.
    staged.ticket = record.ticket;
    staged.ticket.samples = staged.samples;
    try {
      if (written != nullptr)
        adopt(record, *written, staged);
      else
        copy(record, staged);
      staged.times.staged = ticks();
      samples_.hand_in(std::move(written != nullptr ? written->sample : sample_), staged.order,
                       staged.times.staged);
    } catch (...) {
      staged.error = std::current_exception();
    }
    return staged;
  }

  /// The order of the next batch that is staged (see Timeline). For a thread that has paused the
  /// staging.
  std::uint64_t next_order() const { return order_; }

  // ---- On any thread

  /// So many slots are in use from now on, of those that copies fill. Then there may be one for the
  /// next copy.
  void use(std::size_t slots) { held_back_.want(arena_.slots() - slots); }
  /// Adds what the copy stream did to `counts`.
  void add_to(TuneCounts& counts) const {
    counts.device_busy += watch_.running() + watch_.transforming() + watch_.held();
    counts.device_idle += watch_.idle();
  }

  /// At the end of a lease: see CopyWatch.
  void sample() noexcept { watch_.sample(); }

  /// Sets what is this stage's.
  void add_to(Stats& stats) {
    watch_.collect();
    stats.copy = {.busy = watch_.running(),
                  .waiting_for_input = watch_.idle(),
                  .waiting_for_room = watch_.held(),
                  .batches = watch_.issued(),
                  .timed = watch_.timed(),
                  .bytes = copied_bytes_.load(std::memory_order_relaxed),
                  .capacity = arena_.slots()};
    if (transform_.transforms())
      stats.transform = {.busy = watch_.transforming(),
                         .waiting_for_input = watch_.idle() + watch_.held() + watch_.running(),
                         .batches = watch_.issued(),
                         .timed = watch_.timed(),
                         .bytes = watch_.issued() * transform_.slot_bytes()};
    stats.device_bytes = bytes();
  }

 private:
  Staged& occupy(std::unique_ptr<WrittenSlot, ReleaseSlot> written) {
    DeviceSlot memory;
    if (written != nullptr)
      memory = std::move(written.release()->memory);
    else
      memory = std::move(*std::exchange(reserved_, std::nullopt));
    Staged& staged = slots_[memory.index()];
    staged.memory = std::move(memory);
    return staged;
  }

  void copy(BatchRecord& record, Staged& staged) {
    const ScopedRange range(markers::copy, record.ticket.batch);
    const cudaStream_t stream = copy_stream_.get();
    watch_.begin(stream);
    sample_ = samples_.begin(stream, staged.times.filled);
    transform_.take_over(record.batch, staged);
    const std::byte* const block = record.memory.host.data();
    record.memory.host.copy(copies_, [&] {
      const std::size_t bytes = queue_copies(block, record.batch, record.rows, layout_,
                                             transform_.target(staged), copies_.handle);
      add_alone(copied_bytes_, std::uint64_t{bytes});
    });
    watch_.arrive(stream);
    samples_.arrive(sample_);
    transform_.apply(record.rows, staged, stream);
    samples_.end(sample_);
    staged.copied = watch_.end(stream);
  }

  void adopt(const BatchRecord& record, const WrittenSlot& written, Staged& staged) const {
    std::memcpy(staged.object.get(), record.batch, layout_.batch_bytes());
    staged.rows = record.rows;
    staged.copied = written.written.get();
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
  CopyWatch watch_;
  std::vector<Staged> slots_;           // by slot index
  std::optional<DeviceSlot> reserved_;  // for the next copy
  DeviceSamples::Copy sample_;          // of the copy that is being queued
  std::uint64_t order_ = 0;             // of the next batch
  std::atomic<std::uint64_t> copied_bytes_{0};
};

}  // namespace penstock::detail
