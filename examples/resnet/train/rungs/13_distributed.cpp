// SPDX-License-Identifier: Apache-2.0

// T13: T14 on several GPUs, a process for each. The ranks have the same weights and take different
// samples. Their gradients are summed in buckets, on a stream of their own, while the backward pass
// computes others (DataParallel); the sums are in the step's graph. Alone it is one rank. With two,
// on one machine:
//
//   scripts/launch -n 2 -- build/release/examples/resnet/train/13_distributed

#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include "../../../common/watch.hpp"
#include "../run.hpp"

namespace {

using resnet::DataParallel;
using resnet::Format;
using resnet::Fusion;
using resnet::Metrics;
using resnet::Network;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Records;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  DataParallel& ranks = run.ranks();
  Network& network = run.network();
  // All ranks draw the same order from seed and epoch, and each takes its part of every batch.
  const penstock::Sampler sampler(run.sampler_options(), ranks.ranks());
  ranks.share(network, run.stream());  // Rank 0's weights become those of all.
  penstock::Prefetcher<Packed, Records> prefetcher(
      resnet::records_layout(run.batch()), sampler, resnet::RecordSource{&run.data().records()},
      resnet::decode_on_device(run.input_format(), run.augmentation()),
      {.workers = run.options().workers,
       .epochs = run.epochs(),
       .device_times = run.options().watch});
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  penstock::Readback<Metrics> losses(resnet::kStepsAhead);
  penstock::StepGraph graphs;

  run.for_each_step([&](Step& step) {
    penstock::Lease<Packed> batch;
    step.load([&] { batch = prefetcher.next(run.stream()); });
    const auto compute = [&] {
      network.clear_metrics(run.stream());
      network.forward(batch->input.data_handle(), run.batch(), run.stream());
      network.loss(batch->labels.data_handle(), run.stream());
      ranks.backward(network, run.stream());  // The sums begin before the last gradient is there.
      network.step(run.sgd(), run.stream());
    };
    step.compute(run.stream(), [&] {
      if (run.captures(step))
        graphs.launch(batch, run.stream(), compute);
      else
        compute();
    });
    losses.push(network.metrics(), run.stream(), step.teller());
  });
  losses.drain();
  run.set_stats(prefetcher.stats());
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T13",
                           .name = "distributed",
                           .after = "T14",
                           .change = "several GPUs: gradients are summed while others are computed",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .graph = true,
                           .prefetcher = true,
                           .distributed = true,
                           .train = train},
                          argc, argv);
}
