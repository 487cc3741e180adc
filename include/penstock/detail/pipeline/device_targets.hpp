// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceTargets: where an on_device source writes. Each worker has a stream; each slot of the arena
// has an event, which says when it is written.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/markers.hpp>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace penstock::detail {

/// A slot that a worker holds, until it is staged.
struct WrittenSlot {
  DeviceSlot memory;
  Event written;               // The worker's stream has come to the end of the batch.
  DeviceSamples::Copy sample;  // of its work on the device
};

/// Gives the device slot back. Its next writer comes after what was queued.
struct ReleaseSlot {
  void operator()(WrittenSlot* slot) const noexcept { slot->memory = DeviceSlot(); }
};

class DeviceTargets {
 public:
  /// On the current device. `priority` and `name`: of the streams, which add their worker to it.
  DeviceTargets(DeviceArena& arena, DeviceSamples& samples, std::size_t workers, int priority,
                const std::string& name)
      : arena_(arena), samples_(samples), slots_(arena.slots()) {
    for (std::size_t i = 0; i < workers; ++i)
      streams_.emplace_back(priority, name + ", worker " + std::to_string(i));
  }

  cudaStream_t stream(std::size_t worker) const { return streams_[worker].stream.get(); }

  /// A free slot; the worker's stream waits for its last readers. nullptr: there is none now.
  WrittenSlot* try_acquire(std::size_t worker) {
    return keep(arena_.try_acquire(resolved(worker)), worker);
  }
  /// The same, waiting for one. nullptr: stop was requested.
  WrittenSlot* acquire(std::size_t worker, const std::stop_token& stop) {
    return keep(arena_.acquire(resolved(worker), stop), worker);
  }

  /// The worker's stream has all of the batch.
  void record_written(WrittenSlot& slot, std::size_t worker) {
    slot.written.record(stream(worker));
    samples_.end(slot.sample);
  }

 private:
  struct NamedStream {
    NamedStream(int priority, const std::string& its)
        : stream(priority), name(stream.get(), its.c_str()) {}

    Stream stream;
    markers::StreamName name;
    bool is_new = true;  // by its worker: the first batch, which may take far longer, is not timed
  };

  ResolvedStream resolved(std::size_t worker) const { return {stream(worker), arena_.device()}; }

  WrittenSlot* keep(std::optional<DeviceSlot> slot, std::size_t worker) {
    if (!slot) return nullptr;
    WrittenSlot& held = slots_[slot->index()];
    held.memory = std::move(*slot);
    held.sample.reset();  // Of a batch that failed.
    try {
      if (!std::exchange(streams_[worker].is_new, false))
        held.sample = samples_.begin(stream(worker), ticks());
    } catch (...) {
      held.memory = DeviceSlot();
      throw;
    }
    return &held;
  }

  DeviceArena& arena_;
  DeviceSamples& samples_;
  std::deque<NamedStream> streams_;  // before the slots, which are released on them
  std::vector<WrittenSlot> slots_;   // by index
};

}  // namespace penstock::detail
