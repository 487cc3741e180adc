// SPDX-License-Identifier: Apache-2.0

// T11: the next batch is copied while this one is computed: two streams and two events for each of
// two slots, by hand. 12_prefetcher is the same without the hand.

#include <penstock/batch_producer.hpp>
#include <penstock/readback.hpp>

#include <array>

#include "../run.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Images;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Run;
using resnet::Step;

struct Slot {
  resnet::DeviceArray<std::byte> memory;
  penstock::Event copied, used;
};

void train(Run& run) {
  const auto layout = resnet::images_layout(run.batch(), run.options().image_size);
  penstock::PinnedPool pool;
  pool.reserve(run.host_blocks(), penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(
      layout, run.sampler(), run.image_source(), pool,
      {.workers = run.options().workers, .epochs = run.epochs()});
  penstock::Readback<resnet::Metrics> losses(16);
  const penstock::Stream copies;
  std::array<Slot, 2> slots;
  for (Slot& slot : slots)
    slot.memory = resnet::DeviceArray<std::byte>(static_cast<std::int64_t>(layout.bytes()));

  const auto copy_next = [&](Step& step, Slot& slot) {
    std::optional<penstock::HostBatch<Images>> batch;
    step.load([&] { batch = producer.next(); });
    if (!batch) return;                 // The end of the data: nobody will use the slot.
    slot.used.make_wait(copies.get());  // Its last batch must be through.
    step.copy(copies.get(), [&] { batch->copy_to(slot.memory.data(), copies.get()); });
    slot.copied.record(copies.get());
  };

  run.for_each_step([&](Step& step) {
    const auto number = static_cast<std::size_t>(step.number());
    Slot& slot = slots[number & 1];
    if (number == 0) copy_next(step, slot);  // Nobody has copied the first one ahead.
    slot.copied.make_wait(run.stream());
    const Images images = layout.bind(slot.memory.data(), run.batch());
    step.compute(images.pixels.data_handle(), images.labels.data_handle(), run.stream());
    slot.used.record(run.stream());
    losses.push(run.network().metrics(), run.stream(), step.teller());
    copy_next(step, slots[(number + 1) & 1]);
  });
  losses.drain();
  copies.synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T11",
                           .name = "copy stream",
                           .change = "the next batch is copied on a stream of its own",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .train = train},
                          argc, argv);
}
