// SPDX-License-Identifier: Apache-2.0

// I6: the answers come back by themselves (Readback), and another thread tells them: the loop waits
// for nothing that the device does.

#include "feed.hpp"
#include "logits_readback.hpp"

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
  resnet::rungs::LogitsReadback answers(run);
  resnet::InferenceContext context(run.network());

  const auto infer_next = [&] {
    penstock::Lease<Batch> batch;
    lane.load([&] { batch = prefetcher.next(lane.stream()); });
    lane.compute(
        [&] { infer_batch(run, context, *batch, run.batch(), answers.logits(), lane.stream()); });
    answers.push(batch.ticket().batch, lane.stream());
  };
  lane.for_each_request(infer_next, [&] { answers.drain(); });
  run.set_copy_time(prefetcher.stats());
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I6",
                                  .name = "readback",
                                  .after = "I5b",
                                  .change = "the answers come back without a stop",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .infer = infer<Images>,
                                  .infer_records = infer<Packed>},
                                 argc, argv);
}
