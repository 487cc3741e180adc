// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceTargets: the slots that an on_device source writes, each worker on a stream of its own.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/markers.hpp>
#include <stop_token>
#include <string>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

class DeviceTargets {
 public:
  /// Makes the streams on the current device, with this priority. The name of each is `name` and
  /// the number of its worker.
  DeviceTargets(DeviceArena& arena, DeviceSamples& samples, std::size_t workers, int priority,
                const std::string& name)
      : arena_(arena), samples_(samples) {
    for (std::size_t i = 0; i < workers; ++i)
      streams_.emplace_back(priority, name + ", worker " + std::to_string(i));
  }

  cudaStream_t stream(std::size_t worker) const { return streams_[worker].stream.get(); }

  /// Returns a free slot, for whose last readers the worker's stream waits. Empty: there is none
  /// now.
  DeviceSlot try_acquire(std::size_t worker) { return arena_.try_acquire(resolved(worker)); }
  /// The same, but waits for a slot. Empty: stop was requested.
  DeviceSlot acquire(std::size_t worker, const std::stop_token& stop) {
    return arena_.acquire(resolved(worker), stop);
  }

  /// Call it before the source queues its work on the worker's stream, which waits for the slot.
  DeviceSamples::Copy begin(std::size_t worker) {
    if (std::exchange(streams_[worker].is_new, false)) return {};
    DeviceSamples::Copy sample = samples_.want(stream(worker), ticks());
    samples_.begin(sample);
    return sample;
  }
  /// Call it when all of the batch is queued on the worker's stream.
  void end(Event& written, DeviceSamples::Copy& sample, std::size_t worker) {
    written.record(stream(worker));
    samples_.end(sample);
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

  DeviceArena& arena_;
  DeviceSamples& samples_;
  std::deque<NamedStream> streams_;
};

}  // namespace penstock::detail
