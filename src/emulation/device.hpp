// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device of the emulated machine: its default stream and pool, its copy engines, and whether it
// has failed.

#include <driver_types.h>

#include <set>

#include "copy_engines.hpp"
#include "pool.hpp"
#include "stream.hpp"

namespace penstock::emulation::detail {

struct Device {
  Device(int number, const Machine& machine) : index(number), engines(machine.copy_engines) {}

  int index;
  CopyEngines engines;
  Ref<Stream> legacy;                 ///< the legacy default stream
  Ref<Pool> own_pool;                 ///< the default pool
  Ref<Pool> pool;                     ///< the pool that cudaMallocAsync takes from
  cudaError_t failure = cudaSuccess;  ///< sticky: every later call on the device returns it
  unsigned flags = 0;
  std::set<int> peers;  ///< devices whose memory this one may access
};

}  // namespace penstock::emulation::detail
