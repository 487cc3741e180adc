// SPDX-License-Identifier: Apache-2.0

// T10: larger batches: 512 images.

#include "readback_loop.hpp"

using resnet::Format;
using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T10",
                           .name = "large batch",
                           .after = "T9",
                           .change = "512 images in a batch",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .batch = 512,
                           .train = resnet::train_with_readback},
                          argc, argv);
}
