// SPDX-License-Identifier: Apache-2.0

// T7b: every plan that cuDNN has is timed, not its best guesses alone. That takes minutes; --plans
// keeps what was found. T8 goes on from T7.

#include "readback_loop.hpp"

using resnet::Fusion;
using resnet::PlanChoice;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T7b",
                           .name = "exhaustive",
                           .after = "T7",
                           .change = "all plans are timed",
                           .settings = {.fusion = Fusion::full, .plans = PlanChoice::exhaustive},
                           .train = resnet::train_with_readback},
                          argc, argv);
}
