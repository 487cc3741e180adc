// SPDX-License-Identifier: Apache-2.0

// I7: the inference of a batch is one CUDA graph for each device slot (StepGraph), and one launch.

#include <penstock/step_graph.hpp>

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
  warm_up(run, context, answers.logits(), lane.stream());
  penstock::StepGraph graphs;

  const auto infer_next = [&] {
    penstock::Lease<Batch> batch;
    lane.load([&] { batch = prefetcher.next(lane.stream()); });
    lane.compute([&] {
      graphs.launch(batch, lane.stream(), [&] {
        infer_batch(run, context, *batch, run.batch(), answers.logits(), lane.stream());
      });
    });
    answers.push(batch.ticket().batch, lane.stream());
  };
  lane.for_each_request(infer_next, [&] { answers.drain(); });
  run.set_copy_time(prefetcher.stats());
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I7",
                                  .name = "graph",
                                  .after = "I6",
                                  .change = "the inference of a batch is one graph",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .infer = infer<Images>,
                                  .infer_records = infer<Packed>},
                                 argc, argv);
}
