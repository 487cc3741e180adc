// SPDX-License-Identifier: Apache-2.0

// I4: fp16, channels last, and convolution, bias, addition and ReLU in one kernel. (int8: by
// --prepared.)

#include "in_turn.hpp"

using resnet::Format;
using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I4",
                                  .name = "half fused",
                                  .change = "fp16, channels last, layers fused",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .infer = resnet::rungs::infer_in_turn},
                                 argc, argv);
}
