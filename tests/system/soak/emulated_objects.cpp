// SPDX-License-Identifier: Apache-2.0

// Over the emulated runtime every object is counted.

#include <penstock/emulation.hpp>

#include "vitals.hpp"

namespace penstock::test {

std::vector<ObjectCount> cuda_objects() {
  const emulation::Live live = emulation::live();
  return {{"streams", live.streams},
          {"events", live.events},
          {"graphs", live.graphs + live.graph_execs},
          {"user objects", live.user_objects},
          {"memory pools", live.memory_pools},
          {"device allocations", live.device_allocations},
          {"device bytes", live.device_bytes},
          {"pinned allocations", live.pinned_allocations},
          {"pinned bytes", live.pinned_bytes}};
}

}  // namespace penstock::test
