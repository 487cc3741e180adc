// SPDX-License-Identifier: Apache-2.0

// I5a: the next batch is copied while this one is computed: two streams and three events, by hand.
// 05b_prefetcher is the same without the hand.

#include <penstock/batch_producer.hpp>

#include <array>

#include "run.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Images;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::rungs::Lane;
using resnet::rungs::Run;

struct Slot {
  resnet::DeviceArray<std::byte> memory;
  penstock::Event copied;
  std::uint64_t request = 0;
};

void infer(Run& run) {
  const auto layout = run.layout();
  penstock::PinnedPool pool;
  pool.reserve(run.host_blocks(), penstock::BatchProducer<Images>::block_bytes(layout));
  penstock::BatchProducer<Images> producer(layout, run.requests(), run.image_source(), pool,
                                           {.workers = run.options().workers});
  Lane& lane = run.lane(0);
  const resnet::DeviceArray<float> logits(run.logits());
  resnet::InferenceContext context(run.network());
  const penstock::Stream copies;
  penstock::Event computed;
  std::array<Slot, 2> slots;
  for (Slot& slot : slots)
    slot.memory = resnet::DeviceArray<std::byte>(static_cast<std::int64_t>(layout.bytes()));

  const auto copy_next = [&](Slot& slot) {
    std::optional<penstock::HostBatch<Images>> batch;
    lane.load([&] { batch = producer.next(); });
    if (!batch) return;  // The end of the requests: nobody will use the slot.
    slot.request = batch->ticket().batch;
    lane.copy(copies.get(), [&] { batch->copy_to(slot.memory.data(), copies.get()); });
    slot.copied.record(copies.get());
  };

  std::size_t turn = 0;
  copy_next(slots[0]);  // Nobody else copies the first one ahead.
  lane.for_each_request([&] {
    Slot &slot = slots[turn & 1], &next = slots[++turn & 1];
    // The next slot's last batch must be through, and this one's record comes later. (The loop has
    // waited for its answers already; one that does not wait for them needs this event.)
    computed.make_wait(copies.get());
    slot.copied.make_wait(lane.stream());
    lane.compute([&] {
      const Images images = layout.bind(slot.memory.data(), run.batch());
      context.run(run.images(run.batch()), images.pixels.data_handle(), logits.data(),
                  lane.stream());
    });
    computed.record(lane.stream());
    const std::uint64_t request = slot.request;
    copy_next(next);
    lane.read_answers(request, logits.data());
  });
  copies.synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I5a",
                                  .name = "streams",
                                  .change = "the next batch is copied on a stream of its own",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .infer = infer},
                                 argc, argv);
}
