// SPDX-License-Identifier: Apache-2.0
#pragma once

// PinnedEntry: a block of a PinnedPool, and what the pool knows of the device's use of it.

#include <cstddef>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/free_blocks.hpp>
#include <penstock/detail/memory/host_allocation.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <utility>

namespace penstock::detail {

/// One block of memory and the event that says when the device has stopped using it.
struct PinnedEntry : IdleLink<PinnedEntry> {
  explicit PinnedEntry(HostAllocation allocation) : memory(std::move(allocation)) {}
  std::size_t bytes() const { return memory.bytes(); }

  /// On the thread that has resolved the stream.
  void record(const ResolvedStream& stream) {
    user = stream;
    prepare(user.device);
    event->record(stream.handle);
  }

  /// Events belong to a device: the first release on another device makes a new one.
  void prepare(int device) {
    if (event && device == event_device) return;
    const DeviceGuard guard(device);
    const CaptureModeGuard capture;
    event.emplace();
    event_device = device;
  }

  /// Whether the copy is done, or the query of its event failed twice, which sets `failure`. One
  /// failed query says nothing about the copy.
  bool copy_done(const CaptureModeGuard& guard) noexcept {
    cudaError_t status = query(event->get(), guard);
    if (status != cudaSuccess && status != cudaErrorNotReady) {
      status = query(event->get(), guard);
      if (status != cudaSuccess && status != cudaErrorNotReady) failure = status;
    }
    return status != cudaErrorNotReady;
  }

  HostAllocation memory;
  std::size_t asked = 0;  // bytes, by who holds it
  bool refused = false;   // Its holder named a stream to be waited for, which was refused.
  std::optional<Event> event;
  int event_device = -1;
  ResolvedStream user;                // the last stream
  cudaError_t failure = cudaSuccess;  // of asking the event: nobody can tell when it is reached
};

}  // namespace penstock::detail
