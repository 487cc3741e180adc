// SPDX-License-Identifier: Apache-2.0

// T7: fewer, larger kernels: batch norm with addition and ReLU, and in fp16 inside of the
// convolutions themselves.

#include "readback_loop.hpp"

using resnet::Fusion;
using resnet::PlanChoice;

int main(int argc, char** argv) {
  return resnet::run_rung(
      {.number = "T7",
       .name = "fused",
       .after = "T6",
       .change = "batch norm, addition and ReLU in one kernel, or in the convolutions",
       .settings = {.fusion = Fusion::full, .plans = PlanChoice::timed},
       .train = resnet::train_with_readback},
      argc, argv);
}
