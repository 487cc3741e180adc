// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchRecord: all that is known of one batch on its way. A worker takes a free record and memory
// before the batch gets its number. The record is free again when the batch is over. The set of
// records is fixed, and they live as long as the pipeline. So no batch needs an allocation, and a
// pointer to a record never dangles.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/batch_object.hpp>
#include <penstock/detail/memory/host_blocks.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/pipeline/batch_failures.hpp>
#include <penstock/detail/pipeline/leased_batch.hpp>
#include <penstock/detail/pipeline/row_dispenser.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/layout.hpp>
#include <penstock/pinned_pool.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Where a batch is on its way, and how it has ended.
enum class Stage : std::uint8_t {
  free,    ///< the record has no batch
  open,    ///< a worker has given it memory and a number
  filled,  ///< its rows are there, except those that the failure policy leaves out
  failed,  ///< all of it has failed, and the failure policy has not been applied yet
  ended,   ///< the source said that the data end here
  passed,  ///< the failure policy has skipped it: the consumer gets nothing of it
  thrown,  ///< next() throws an error in its place
  leased,  ///< a Prefetcher's consumer has it
};

/// The memory of a batch's rows: one of these, or none.
struct RecordMemory {
  PinnedBlock block;  ///< of a BatchProducer, whose HostBatch takes it
  HostBlock host;     ///< of a Prefetcher, until the copy is queued
  DeviceSlot slot;    ///< of a Prefetcher: for the copy, or from the start for an on_device source

  explicit operator bool() const noexcept { return host || block || slot; }
  /// The source writes here.
  std::byte* data() const noexcept {
    return host ? host->memory.data() : block ? block.data() : slot.data();
  }
};

/// At each stage its owner writes it without a lock: the worker that opens the batch, the workers
/// that fill pieces of it, the one that fills the last row, the thread that stages, the thread that
/// takes, the thread that ends the lease. Processors fetch cache lines in pairs: the first two
/// lines are a pair.
struct alignas(128) BatchRecord : LeasedBatch {
  /// Holds one batch of `layout` at a time. `its_index` is its place among the records.
  BatchRecord(const BlockLayout& layout, std::uint32_t its_index)
      : index(its_index), object(layout), scratch(layout.scratch_bytes()) {
    layout.reserve_samples(numbers);
    batch = object.get();
  }

  /// The worker that has claimed `its_number` calls this. The memory may be set before.
  void open(std::uint64_t its_number) {
    number = its_number;
    set(Stage::open);
    ticket = Ticket{};
    rows = 0;
    numbers.clear();
    times = BatchTimes{};
    sample.reset();
    to_fill.open(0);
    ended.store(false, std::memory_order_relaxed);
    work.store(0, std::memory_order_relaxed);
  }
  /// Gives back the memory, if it has any. The last owner calls this. It writes no cache line
  /// without need, since a worker writes the record next.
  void clear() {
    if (memory) memory = RecordMemory();
    if (!failures.empty()) failures.clear();
    set(Stage::free);
  }
  bool is(Stage stage) const noexcept { return stage_.load(std::memory_order_relaxed) == stage; }
  /// It has a batch that is not leased. It loads the stage once, since a lease may end meanwhile.
  bool is_in_pipeline() const noexcept {
    const Stage stage = stage_.load(std::memory_order_relaxed);
    return stage != Stage::free && stage != Stage::leased;
  }
  void set(Stage stage) noexcept { stage_.store(stage, std::memory_order_relaxed); }
  /// Puts the exception that is being handled in the batch's place: an error of CUDA's, which no
  /// failure policy covers.
  void throw_instead() {
    failures.clear();
    failures.add({std::current_exception(), nullptr});
    set(Stage::thrown);
  }
  /// Something in it has failed. Any worker that is in a piece of it may call this.
  void fail(BatchFailure failed) {
    const std::lock_guard lock(failing);
    failures.add(std::move(failed));
  }

  /// Whether `stream` is a consumer of the lease. False for a default stream, whose meaning depends
  /// on the thread.
  bool is_used_on(cudaStream_t stream) const noexcept {
    return std::any_of(consumers.begin(), consumers.end(), [&](const ResolvedStream& user) {
      return user.handle == stream && !user.is_default();
    });
  }

  // ---- The second cache line. A BatchProducer's consumer reads it and the first, and no other one

 private:
  std::atomic<Stage> stage_{Stage::free};  // It orders nothing.

 public:
  const std::uint32_t index;
  BatchFailures failures;
  RecordMemory memory;

  // ---- The third one

  std::uint64_t number = 0;     ///< over all epochs
  cudaEvent_t ready = nullptr;  ///< of a Prefetcher: consumers wait for it
  std::uint64_t copy = 0;       ///< see HostBlocks; 0: `ready` is an event of this record
  std::uint64_t order = 0;      ///< how many were staged before it; see Timeline
  std::uint64_t skipped = 0;    ///< by the failure policy, when it was staged

  // ---- The next one: see BatchTimes

  alignas(64) BatchTimes times;

  // ---- The next one: several workers write it

  alignas(64) BatchRows to_fill;
  std::atomic<bool> ended{false};      ///< the source said so, or stop was requested
  std::atomic<std::uint64_t> work{0};  ///< of `times`: of the workers that are through with rows

  // ---- The rest

  alignas(64) std::uint64_t pattern = 0;  ///< of FillChecks
  BatchObject object;                     ///< that `batch` points at
  std::vector<std::uint64_t> numbers;     ///< of the samples, which the ticket's span names
  std::vector<std::byte> scratch;         ///< what was assigned to ragged fields
  std::mutex failing;                     ///< of `failures`, while several workers fill the batch

  // ---- Of a Prefetcher

  std::optional<BatchObject> output;      ///< of a DeviceTransform, whose input is `object`
  std::optional<Event> written;           ///< behind a DeviceTransform, or an on_device source
  DeviceSamples::Copy sample;             ///< of its copy, or of its source's work on the device
  std::vector<ResolvedStream> consumers;  ///< of the lease
};

}  // namespace penstock::detail
