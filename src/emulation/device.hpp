// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device of the emulated machine: its default stream and pool, its copy engines, and whether it
// has failed.

#include <driver_types.h>

#include <set>

#include "annotations.hpp"
#include "copy_engines.hpp"
#include "pool.hpp"
#include "stream.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// For race detection: the work of streams of a device whose threads have ended. It happens before
/// the return of a wait for the device or the legacy default stream.
struct EndedStreams {
  alignas(8) Edge blocking;
  alignas(8) Edge others;

  /// Call it on the stream's own thread, at the end of that thread.
  void add(const Stream& stream) {
    if (detects_races()) (stream.blocking() ? blocking : others).release();
  }
  void acquire_blocking() const {
    if (detects_races()) blocking.acquire();
  }
  void acquire_all() const {
    acquire_blocking();
    if (detects_races()) others.acquire();
  }
};

struct Device {
  Device(int number, const Machine& machine) : index(number), engines(machine.copy_engines) {}

  int index;
  CopyEngines engines;
  EndedStreams ended;
  Ref<Stream> legacy;                 ///< the legacy default stream
  PoolChoice pools;                   ///< cudaMallocAsync allocates from the current pool
  cudaError_t failure = cudaSuccess;  ///< sticky: every later call on the device returns it
  unsigned flags = 0;
  std::set<int> peers;  ///< devices whose memory this one may access
};

}  // namespace penstock::emulation::detail
