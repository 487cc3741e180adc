// SPDX-License-Identifier: Apache-2.0

// T11: the next batch is copied while this one is computed: on a stream of its own, with an event
// behind each copy. 12_prefetcher does this and all the rest.

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/readback.hpp>

#include "../run.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Images;
using resnet::Metrics;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  const auto layout = resnet::images_layout(run.batch(), run.options().image_size);
  penstock::PinnedPool pool;
  // Each step that is under way may hold a block: it has not been copied yet.
  pool.reserve(run.host_blocks() + resnet::kStepsAhead,
               penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(
      layout, run.sampler(), run.image_source(), pool,
      {.workers = run.options().workers, .epochs = run.epochs()});
  penstock::DeviceArena arena(2, layout.bytes());
  penstock::Readback<Metrics> losses(resnet::kStepsAhead);
  const penstock::Stream copies;
  penstock::Event copied;

  run.for_each_step([&](Step& step) {
    std::optional<penstock::HostBatch<Images>> batch;
    step.load([&] { batch = producer.next(); });

    penstock::DeviceSlot slot = arena.acquire(copies.get());  // Its last batch must be through.
    step.copy(copies.get(), [&] { batch->copy_to(slot.data(), copies.get()); });
    copied.record(copies.get());
    copied.make_wait(run.stream());

    const Images images = layout.bind(slot.data(), run.batch());
    step.compute(images.pixels.data_handle(), images.labels.data_handle(), run.stream());
    slot.release_after(run.stream());
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T11",
                           .name = "copy stream",
                           .after = "T10",
                           .change = "the next batch is copied on a stream of its own",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .train = train},
                          argc, argv);
}
