// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchMemory: the memory that workers fill: the blocks of a Prefetcher, those of a BatchProducer's
// pool, or the device slots of an on_device source.

#include <cstddef>
#include <cstdint>
#include <penstock/detail/memory/host_blocks.hpp>
#include <penstock/detail/memory/pool_access.hpp>
#include <penstock/detail/memory/wait_ahead.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/detail/pipeline/batch_filler.hpp>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/held_back.hpp>
#include <penstock/markers.hpp>
#include <penstock/pinned_pool.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class BatchMemory {
 public:
  /// Blocks of `pool`, which is asked for as many as it has. `ahead` is told of its time-outs.
  BatchMemory(PinnedPool& pool, std::size_t block_bytes, WaitAhead& ahead)
      : pool_(&pool), block_bytes_(block_bytes), ahead_(&ahead), held_back_(0) {}
  /// A Prefetcher has `blocks` or, where the source writes device memory, `targets`: `count` of
  /// them.
  BatchMemory(HostBlocks& blocks, DeviceTargets* targets, std::size_t count)
      : blocks_(targets == nullptr ? &blocks : nullptr),
        targets_(targets),
        count_(count),
        held_back_(count) {}

  /// Memory for a batch, maybe of the number `next`; waits for it. False: stop was requested, or
  /// (blocks of a Prefetcher) `closed()`, which wake() follows.
  template <class Closed>
  bool acquire(RecordMemory& memory, WorkerTools& tools, std::uint64_t next, Closed closed) {
    do {
      if (!try_acquire(memory, tools) && !wait(memory, tools, next, closed)) return false;
    } while (held_back_.takes(memory));
    return true;
  }
  /// Workers that wait check again whether it is closed.
  void wake() noexcept {
    if (blocks_ != nullptr) blocks_->wake();
  }

  /// Of a Prefetcher: so many batches have memory from now on, as soon as what is beyond comes
  /// back. Any thread.
  void use(std::size_t batches) { held_back_.want(count_ - batches); }

 private:
  bool try_acquire(RecordMemory& memory, const WorkerTools& tools) {
    if (targets_ != nullptr)
      memory.slot = targets_->try_acquire(tools.worker);
    else if (blocks_ != nullptr)
      memory.host = blocks_->own(blocks_->try_acquire());
    else
      memory.block = pool_->try_acquire(block_bytes_);
    return static_cast<bool>(memory);
  }

  template <class Closed>
  bool wait(RecordMemory& memory, WorkerTools& tools, std::uint64_t next, Closed closed) {
    const WorkerState state = targets_ != nullptr ? WorkerState::slot : WorkerState::memory;
    const WorkerTrace::Wait wait(tools.trace, tools.now, state, next);
    const ScopedRange range(markers::wait_for_memory, next);
    if (targets_ != nullptr)
      memory.slot = targets_->acquire(tools.worker, tools.stop);
    else if (blocks_ != nullptr)
      memory.host = blocks_->own(blocks_->acquire(tools.capture_mode, closed));
    else
      memory.block = PoolAccess::acquire(*pool_, block_bytes_, tools.stop, *ahead_);
    return static_cast<bool>(memory);
  }

  // One of the three.
  PinnedPool* const pool_ = nullptr;
  HostBlocks* const blocks_ = nullptr;
  DeviceTargets* const targets_ = nullptr;

  const std::size_t block_bytes_ = 0;
  WaitAhead* const ahead_ = nullptr;
  const std::size_t count_ = 0;
  HeldBack<RecordMemory> held_back_;
};

}  // namespace penstock::detail
