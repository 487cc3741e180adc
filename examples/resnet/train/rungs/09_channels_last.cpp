// SPDX-License-Identifier: Apache-2.0

// T9: channels last, the order that tensor cores read.

#include "readback_loop.hpp"

using resnet::Format;
using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T9",
                           .name = "channels last",
                           .after = "T8",
                           .change = "NHWC",
                           .settings = {.precision = Precision::fp16,
                                        .format = Format::nhwc,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .train = resnet::train_with_readback},
                          argc, argv);
}
