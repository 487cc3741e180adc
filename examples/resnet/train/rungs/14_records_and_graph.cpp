// SPDX-License-Identifier: Apache-2.0

// T14: the records themselves cross the bus, 3 KiB an image; one kernel in the copy stream decodes,
// crops, flips, resizes, normalises and packs them (DeviceTransform). And the step is one CUDA
// graph (StepGraph).

#include "records_loop.hpp"

using resnet::Format;
using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

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
       .train = resnet::train_on_records},
      argc, argv);
}
