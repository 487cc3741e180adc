// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop of I3b, which I4a to I4 share: one batch after the other is copied, computed and
// answered, in memory that is there from the start. They differ in what the device computes.

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>

#include "run.hpp"

namespace resnet::rungs {

inline void infer_in_turn(Run& run) {
  const auto layout = run.layout();
  penstock::PinnedPool pool;
  pool.reserve(run.host_blocks(), penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(layout, run.requests(), run.image_source(), pool,
                                           {.workers = run.options().workers});
  Lane& lane = run.lane(0);
  penstock::DeviceArena arena(1, layout.bytes());
  const DeviceArray<float> logits(run.logits());
  InferenceContext context(run.network());

  lane.for_each_request([&] {
    std::optional<penstock::HostBatch<Images>> batch;
    lane.load([&] { batch = producer.next(); });
    const std::uint64_t request = batch->ticket().batch;

    penstock::DeviceSlot slot = arena.acquire(lane.stream());
    lane.copy(lane.stream(), [&] { batch->copy_to(slot.data(), lane.stream()); });

    lane.compute([&] {
      const Images images = layout.bind(slot.data(), run.batch());
      context.run(run.images(run.batch()), images.pixels.data_handle(), logits.data(),
                  lane.stream());
    });
    slot.release_after(lane.stream());
    lane.read_answers(request, logits.data());
  });
}

}  // namespace resnet::rungs
