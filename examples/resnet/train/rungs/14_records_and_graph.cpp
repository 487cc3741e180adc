// SPDX-License-Identifier: Apache-2.0

// T14: the step is one CUDA graph (StepGraph), see packed_loop.hpp; what it computes on comes as in
// T14b.

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
       .device_depth = run.device_depth(2),
       .epochs = run.epochs(),
       .device_times = run.options().watch});
  train_packed(run, prefetcher);
}

}  // namespace

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T14",
                           .name = "records and graph",
                           .after = "T14b",
                           .change = "a step is one graph",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .graph = true,
                           .prefetcher = true,
                           .special = {"--device-depth", "--input-apart"},
                           .train = train},
                          argc, argv);
}
