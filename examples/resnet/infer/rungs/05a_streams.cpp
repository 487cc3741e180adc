// SPDX-License-Identifier: Apache-2.0

// I5a: the next batch is copied while this one is computed: on a stream of its own, with events for
// what is copied, and for what is computed (DeviceArena has these). 05b_prefetcher does this and
// all the rest.

#include <penstock/batch_producer.hpp>
#include <penstock/device_arena.hpp>

#include "run.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Images;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::rungs::Lane;
using resnet::rungs::Run;

/// What is on the device, or on its way there; without a slot, the end of the requests.
struct Copied {
  penstock::DeviceSlot slot;
  std::uint64_t request = 0;
};

void infer(Run& run) {
  const auto layout = run.layout();
  penstock::PinnedPool pool;
  pool.reserve(run.host_blocks(), penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(layout, run.requests(), run.image_source(), pool,
                                           {.workers = run.options().workers});
  Lane& lane = run.lane(0);
  penstock::DeviceArena arena(2, layout.bytes());
  const resnet::DeviceArray<float> logits(run.logits());
  resnet::InferenceContext context(run.network());
  const penstock::Stream copies;
  penstock::Event copied;

  const auto copy_next = [&] {
    std::optional<penstock::HostBatch<Images>> batch;
    lane.load([&] { batch = producer.next(); });
    if (!batch) return Copied();
    Copied next{arena.acquire(copies.get()), batch->ticket().batch};
    lane.copy(copies.get(), [&] { batch->copy_to(next.slot.data(), copies.get()); });
    copied.record(copies.get());
    return next;
  };

  Copied next = copy_next();  // Nobody else copies the first one ahead.
  lane.for_each_request([&] {
    Copied now = std::move(next);
    copied.make_wait(lane.stream());
    lane.compute([&] {
      const Images images = layout.bind(now.slot.data(), run.batch());
      context.run(run.images(run.batch()), images.pixels.data_handle(), logits.data(),
                  lane.stream());
    });
    now.slot.release_after(lane.stream());
    next = copy_next();
    lane.read_answers(now.request, logits.data());
  });
  copies.synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I5a",
                                  .name = "streams",
                                  .after = "I4",
                                  .change = "the next batch is copied on a stream of its own",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .infer = infer},
                                 argc, argv);
}
