// SPDX-License-Identifier: Apache-2.0

// T13: several GPUs, each with T14's input for itself. The gradients are summed over the ranks in
// buckets, on a stream of their own, while the backward pass computes others (DataParallel); the
// sums are in the step's graph. Alone it is one rank. With two, on one machine:
//
//   scripts/launch -n 2 -- build/release/examples/resnet/train/13_distributed

#include "records_loop.hpp"

using resnet::Format;
using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T13",
                           .name = "distributed",
                           .change = "several GPUs: gradients are summed while others are computed",
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
