// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "zero_calls.hpp"

namespace penstock::test {
namespace {

constexpr cudaStream_t kZero = nullptr;

constexpr ZeroCalls kZeroCalls = {
    .next = [](Prefetcher<Numbers>& prefetcher) { return prefetcher.next(kZero); },
    .also_used_on = [](Lease<Numbers>& lease) { lease.also_used_on(kZero); },
    .acquire = [](DeviceArena& arena) { return arena.acquire(kZero); },
    .release_slot = [](DeviceSlot& slot) { slot.release_after(kZero); },
    .release_slot_after_several =
        [](DeviceSlot& slot) {
          slot.release_after(std::array{kZero, kZero});
        },
    .release_block = [](PinnedBlock& block) { block.release_after(kZero); },
    .copy_block = [](PinnedBlock& block,
                     std::byte* device) { block.copy_to(device, block.size(), kZero); },
    .copy_batch = [](HostBatch<Numbers>& batch,
                     std::byte* device) { batch.copy_to(device, kZero); },
    .push = [](Readback<int>& readback,
               const int* device) { readback.push(device, kZero, [](int) {}); },
    .for_each = [](int* values) { for_each(kZero, 3, [values](std::int64_t i) { ++values[i]; }); },
    .launch =
        [](StepGraph& graphs, const Lease<Numbers>& lease, int* value) {
          graphs.launch(lease, kZero,
                        [=](cudaStream_t stream) { cudaMemsetAsync(value, 1, 4, stream); });
        },
    .launch_numbered =
        [](StepGraph& graphs, int* value) {
          graphs.launch_numbered(0, kZero, [=] { cudaMemsetAsync(value, 1, 4, kZero); });
        },
    .record = [](Event& event) { event.record(kZero); },
    .make_wait = [](const Event& event) { event.make_wait(kZero); },
};

}  // namespace
}  // namespace penstock::test
