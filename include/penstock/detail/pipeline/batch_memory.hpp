// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchMemory: what workers fill: blocks of a pinned pool, or the device slots of an on_device
// source; as much of it as is in use.

#include <cstddef>
#include <cstdint>
#include <penstock/detail/memory/wait_ahead.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/detail/pipeline/batch_filler.hpp>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/detail/pipeline/device_targets.hpp>
#include <penstock/detail/pipeline/held_back.hpp>
#include <penstock/markers.hpp>
#include <penstock/pinned_pool.hpp>

namespace penstock::detail {

class BatchMemory {
 public:
  /// For `most` batches. `targets`: of an on_device source, else nullptr. `ahead` is told of the
  /// pool's time-outs.
  BatchMemory(PinnedPool& pool, std::size_t block_bytes, DeviceTargets* targets, std::size_t most,
              WaitAhead& ahead)
      : pool_(pool),
        block_bytes_(block_bytes),
        targets_(targets),
        most_(most),
        ahead_(ahead),
        held_back_(most) {}

  /// Memory for a batch, maybe of the number `next`; waits for it. False: stop was requested.
  bool acquire(RecordMemory& memory, WorkerTools& tools, std::uint64_t next) {
    do {
      if (!try_acquire(memory, tools) && !wait(memory, tools, next)) return false;
    } while (held_back_.takes(memory));
    return true;
  }

  /// So many batches have memory from now on, as soon as what is beyond comes back. Any thread.
  void use(std::size_t batches) { held_back_.want(most_ - batches); }

 private:
  bool try_acquire(RecordMemory& memory, const WorkerTools& tools) {
    if (targets_ != nullptr)
      memory.slot.reset(targets_->try_acquire(tools.worker));
    else
      memory.block = pool_.try_acquire(block_bytes_);
    return static_cast<bool>(memory);
  }

  bool wait(RecordMemory& memory, WorkerTools& tools, std::uint64_t next) {
    const WorkerState state = targets_ != nullptr ? WorkerState::slot : WorkerState::memory;
    const WorkerTrace::Wait wait(tools.trace, state, next);
    const ScopedRange range(markers::wait_for_memory, next);
    if (targets_ != nullptr)
      memory.slot.reset(targets_->acquire(tools.worker, tools.stop));
    else
      memory.block = pool_.acquire(block_bytes_, tools.stop, ahead_);
    tools.lap();
    return static_cast<bool>(memory);
  }

  PinnedPool& pool_;
  const std::size_t block_bytes_;
  DeviceTargets* const targets_;
  const std::size_t most_;
  WaitAhead& ahead_;
  HeldBack<RecordMemory> held_back_;
};

}  // namespace penstock::detail
