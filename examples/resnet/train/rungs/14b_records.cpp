// SPDX-License-Identifier: Apache-2.0

// T14b: the records themselves cross the bus, 3 KiB an image; one kernel in the copy stream
// decodes, crops, flips, resizes, normalises and packs them (DeviceTransform).

#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>

#include "../../../common/watch.hpp"
#include "../run.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Metrics;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Records;
using resnet::Run;
using resnet::Step;

void train(Run& run) {
  penstock::Prefetcher<Packed, Records> prefetcher(
      resnet::records_layout(run.batch()), run.sampler(),
      resnet::RecordSource{&run.data().records()},
      resnet::decode_on_device(run.input_format(), run.augmentation()),
      {.workers = run.options().workers,
       .device_depth = run.device_depth(2),
       .epochs = run.epochs(),
       .device_times = run.options().watch});
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  penstock::Readback<Metrics> losses(resnet::kStepsAhead);

  run.for_each_step([&](Step& step) {
    penstock::Lease<Packed> batch;
    step.load([&] { batch = prefetcher.next(run.stream()); });
    step.compute(batch->input.data_handle(), batch->labels.data_handle(), run.stream());
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
  run.set_stats(prefetcher.stats());
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T14b",
                           .name = "records",
                           .after = "T14a",
                           .change = "records over the bus, decoded in the copy stream",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .prefetcher = true,
                           .special = {"--device-depth"},
                           .train = train},
                          argc, argv);
}
