// SPDX-License-Identifier: Apache-2.0

// I3: the workers fill page-locked memory, which the device reads by itself.

#include <penstock/device_arena.hpp>

#include "../../../common/check.hpp"
#include "../../data/hand_loader.hpp"
#include "run.hpp"

namespace {

using examples::check;
using resnet::HandLoader;
using resnet::Images;
using resnet::rungs::Lane;
using resnet::rungs::Run;

void infer(Run& run) {
  const auto layout = run.layout();
  HandLoader loader(
      layout, run.requests(), run.image_source(),
      {.workers = run.options().workers, .slots = run.host_blocks(), .page_locked = true});
  Lane& lane = run.lane(0);
  penstock::DeviceArena arena(1, layout.bytes());
  const resnet::DeviceArray<float> logits(run.logits());
  resnet::InferenceContext context(run.network());

  lane.for_each_request([&] {
    const HandLoader::Batch* batch = nullptr;
    lane.load([&] { batch = loader.next(); });

    penstock::DeviceSlot slot = arena.acquire(lane.stream());
    lane.copy(lane.stream(), [&] {
      check(cudaMemcpyAsync(slot.data(), batch->memory.data(), layout.bytes(),
                            cudaMemcpyHostToDevice, lane.stream()),
            "cudaMemcpyAsync");
      check(cudaStreamSynchronize(lane.stream()), "cudaStreamSynchronize");
    });

    lane.compute([&] {
      const Images images = layout.bind(slot.data(), run.batch());
      context.run(run.images(run.batch()), images.pixels.data_handle(), logits.data(),
                  lane.stream());
    });
    slot.release_after(lane.stream());
    lane.read_answers(batch->ticket.batch, logits.data());
  });
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I3",
                                  .name = "pinned",
                                  .after = "I2",
                                  .change = "page-locked host memory",
                                  .infer = infer},
                                 argc, argv);
}
