// SPDX-License-Identifier: Apache-2.0

// T4c: device memory is reused (DeviceArena).

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>

#include "../run.hpp"

namespace {

using resnet::Images;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  const auto layout = resnet::images_layout(run.batch(), run.options().image_size);
  penstock::PinnedPool pool;
  pool.reserve(run.host_blocks(), penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(
      layout, run.sampler(), run.image_source(), pool,
      {.workers = run.options().workers, .epochs = run.epochs()});
  penstock::DeviceArena arena(2, layout.bytes());

  run.for_each_step([&](Step& step) {
    std::optional<penstock::HostBatch<Images>> batch;
    step.load([&] { batch = producer.next(); });

    penstock::DeviceSlot slot = arena.acquire(run.stream());
    step.copy(run.stream(), [&] { batch->copy_to(slot.data(), run.stream()); });

    const Images images = layout.bind(slot.data(), run.batch());
    step.compute(images.pixels.data_handle(), images.labels.data_handle(), run.stream());
    slot.release_after(run.stream());
    run.tell(step.number(), run.read_metrics());
  });
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T4c",
                           .name = "arena",
                           .after = "T4b",
                           .change = "device memory is reused",
                           .train = train},
                          argc, argv);
}
