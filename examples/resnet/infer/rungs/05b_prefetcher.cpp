// SPDX-License-Identifier: Apache-2.0

// I5b: batches that are already on the device, by the Prefetcher: what I5a does, and the loop is
// the simplest of all. With --uint8 the records cross the bus, and the copy stream decodes them.

#include "feed.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Images;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::rungs::Lane;
using resnet::rungs::Run;

template <class Batch>
void infer(Run& run) {
  auto prefetcher = resnet::rungs::make_prefetcher<Batch>(run, 2);
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  Lane& lane = run.lane(0);
  const resnet::DeviceArray<float> logits(run.logits());
  resnet::InferenceContext context(run.network());

  lane.for_each_request([&] {
    penstock::Lease<Batch> batch;
    lane.load([&] { batch = prefetcher.next(lane.stream()); });
    lane.compute(
        [&] { infer_batch(run, context, *batch, run.batch(), logits.data(), lane.stream()); });
    lane.read_answers(batch.ticket().batch, logits.data());
  });
  run.set_copy_time(prefetcher.stats());
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I5b",
                                  .name = "prefetcher",
                                  .after = "I5a",
                                  .change = "batches arrive on the device",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .infer = infer<Images>,
                                  .infer_records = infer<Packed>},
                                 argc, argv);
}
