// SPDX-License-Identifier: Apache-2.0

// T6: cuDNN's plans are chosen by timing them on the device; --exhaustive times all there are.

#include "readback_loop.hpp"

using resnet::PlanChoice;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T6",
                           .name = "autotune",
                           .after = "T5",
                           .change = "cuDNN's plans are chosen by timing them",
                           .settings = {.plans = PlanChoice::timed},
                           .train = resnet::train_with_readback},
                          argc, argv);
}
