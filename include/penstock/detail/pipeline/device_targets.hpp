// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceTargets: where an on_device source writes: slots of the arena, each worker on a stream of
// its own.

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

namespace penstock::detail {

class DeviceTargets {
 public:
  /// On the current device. `priority` and `name`: of the streams, which add their worker to it.
  DeviceTargets(DeviceArena& arena, DeviceSamples& samples, std::size_t workers, int priority,
                const std::string& name)
      : arena_(arena), samples_(samples) {
    for (std::size_t i = 0; i < workers; ++i)
      streams_.emplace_back(priority, name + ", worker " + std::to_string(i));
  }

  cudaStream_t stream(std::size_t worker) const { return streams_[worker].stream.get(); }

  /// A free slot; the worker's stream waits for its last readers. Empty: there is none now.
  DeviceSlot try_acquire(std::size_t worker) { return arena_.try_acquire(resolved(worker)); }
  /// The same, waiting for one. Empty: stop was requested.
  DeviceSlot acquire(std::size_t worker, const std::stop_token& stop) {
    return arena_.acquire(resolved(worker), stop);
  }

  /// The worker's stream waits for the slot, and the source's work comes behind that.
  DeviceSamples::Copy begin(std::size_t worker) {
    if (std::exchange(streams_[worker].is_new, false)) return {};
    DeviceSamples::Copy sample = samples_.want(stream(worker), ticks());
    samples_.begin(sample);
    return sample;
  }
  /// The worker's stream has all of the batch.
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
