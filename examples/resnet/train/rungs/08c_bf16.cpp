// SPDX-License-Identifier: Apache-2.0

// T8c: bf16 in place of fp16: the range of fp32, with 8 binary digits. It needs no loss scale. T9
// goes on from T8.

#include "readback_loop.hpp"

using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T8c",
                           .name = "bf16",
                           .after = "T8",
                           .change = "bf16 in place of fp16",
                           .settings = {.precision = Precision::bf16,
                                        .fusion = Fusion::full,
                                        .plans = PlanChoice::timed},
                           .train = resnet::train_with_readback},
                          argc, argv);
}
