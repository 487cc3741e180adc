// SPDX-License-Identifier: Apache-2.0

// T12: batches that are already on the device, by the Prefetcher: what T11 does, and the loop is
// the simplest of all.

#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>

#include "../../../common/watch.hpp"
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
  penstock::Prefetcher<Images> prefetcher(
      resnet::images_layout(run.batch(), run.options().image_size), run.sampler(),
      run.image_source(),
      {.workers = run.options().workers,
       .epochs = run.epochs(),
       .device_times = run.options().watch});
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  penstock::Readback<Metrics> losses(resnet::kStepsAhead);

  run.for_each_step([&](Step& step) {
    penstock::Lease<Images> batch;
    step.load([&] { batch = prefetcher.next(run.stream()); });
    step.compute(batch->pixels.data_handle(), batch->labels.data_handle(), run.stream());
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
  run.set_stats(prefetcher.stats());
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T12",
                           .name = "prefetcher",
                           .after = "T11",
                           .change = "batches arrive on the device",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .prefetcher = true,
                           .train = train},
                          argc, argv);
}
