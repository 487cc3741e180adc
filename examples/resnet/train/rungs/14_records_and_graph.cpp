// SPDX-License-Identifier: Apache-2.0

// T14: the records themselves cross the bus, 3 KiB an image; one kernel in the copy stream decodes,
// crops, flips, resizes, normalises and packs them (DeviceTransform). And the step is one CUDA
// graph (StepGraph).

#include "packed_loop.hpp"

namespace {

using resnet::Format;
using resnet::Fusion;
using resnet::Packed;
using resnet::PlanChoice;
using resnet::Precision;
using resnet::Records;
using resnet::Run;

void train(Run& run) {
  penstock::Prefetcher<Packed, Records> prefetcher(
      resnet::records_layout(run.batch()), run.sampler(),
      resnet::RecordSource{&run.data().records()},
      resnet::decode_on_device(run.input_format(), run.augmentation()),
      {.workers = run.options().workers,
       .epochs = run.epochs(),
       .device_times = run.options().watch});
  train_packed(run, prefetcher);
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung(
      {.number = "T14",
       .name = "records and graph",
       .change = "uint8 records over the bus, decoded on the device; a step is one graph",
       .settings = {.precision = Precision::fp16,
                    .format = Format::nhwc,
                    .fusion = Fusion::full,
                    .plans = PlanChoice::timed},
       .batch = 512,
       .graph = true,
       .prefetcher = true,
       .train = train},
      argc, argv);
}
