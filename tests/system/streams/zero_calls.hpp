// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every call of penstock that takes a stream, given stream 0 by a source that is compiled for the
// legacy default stream, and by one that is compiled for per-thread default streams.

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/launch.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include "support/numbers.hpp"

namespace penstock::test {

/// Stream 0 as one kind of source sees it.
struct ZeroCalls {
  Lease<Numbers> (*next)(Prefetcher<Numbers>& prefetcher);
  void (*also_used_on)(Lease<Numbers>& lease);
  DeviceSlot (*acquire)(DeviceArena& arena);
  void (*release_slot)(DeviceSlot& slot);
  void (*release_slot_after_several)(DeviceSlot& slot);
  void (*release_block)(PinnedBlock& block);
  void (*copy_block)(PinnedBlock& block, std::byte* device);
  void (*copy_batch)(HostBatch<Numbers>& batch, std::byte* device);
  void (*push)(Readback<int>& readback, const int* device);
  void (*for_each)(int* values);
  void (*launch)(StepGraph& graphs, const Lease<Numbers>& lease, int* value);
  void (*launch_numbered)(StepGraph& graphs, int* value);
  void (*record)(Event& event);
  void (*make_wait)(const Event& event);
};

extern const ZeroCalls zero_in_legacy_source, zero_in_per_thread_source;

}  // namespace penstock::test
