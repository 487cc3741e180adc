// SPDX-License-Identifier: Apache-2.0

// T8: fp16 for activations, weights and gradients, with a dynamic loss scale that never leaves the
// device; --precision bf16 needs none.

#include "readback_loop.hpp"

using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T8",
                           .name = "mixed precision",
                           .after = "T7",
                           .change = "fp16 with dynamic loss scale",
                           .settings = {.precision = Precision::fp16,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .train = resnet::train_with_readback},
                          argc, argv);
}
