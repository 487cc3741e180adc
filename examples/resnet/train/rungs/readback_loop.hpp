// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop of T5, which the rungs up to T10 share: they differ in what the device computes.
// Nothing in it waits for the device: the loss comes back by itself (Readback).

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/readback.hpp>

#include "../run.hpp"

namespace resnet {

inline void train_with_readback(Run& run) {
  const auto layout = images_layout(run.batch(), run.options().image_size);
  penstock::PinnedPool pool;
  // Each step that is under way may hold a block: it has not been copied yet.
  pool.reserve(run.host_blocks() + kStepsAhead,
               penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(
      layout, run.sampler(), run.image_source(), pool,
      {.workers = run.options().workers, .epochs = run.epochs()});
  penstock::DeviceArena arena(2, layout.bytes());
  penstock::Readback<Metrics> losses(kStepsAhead);

  run.for_each_step([&](Step& step) {
    std::optional<penstock::HostBatch<Images>> batch;
    step.load([&] { batch = producer.next(); });

    penstock::DeviceSlot slot = arena.acquire(run.stream());
    step.copy(run.stream(), [&] { batch->copy_to(slot.data(), run.stream()); });

    const Images images = layout.bind(slot.data(), run.batch());
    step.compute(images.pixels.data_handle(), images.labels.data_handle(), run.stream());
    slot.release_after(run.stream());
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
}

}  // namespace resnet
