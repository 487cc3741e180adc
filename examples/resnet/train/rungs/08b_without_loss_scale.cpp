// SPDX-License-Identifier: Apache-2.0

// T8b: fp16 without a loss scale. Gradients below 6e-8 become 0, and the first loss that is not
// finite ends the run. T9 goes on from T8.

#include "readback_loop.hpp"

using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T8b",
                           .name = "without loss scale",
                           .after = "T8",
                           .change = "no loss scale",
                           .settings = {.precision = Precision::fp16,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .loss_scale = false,
                           .train = resnet::train_with_readback},
                          argc, argv);
}
