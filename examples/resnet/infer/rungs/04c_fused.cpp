// SPDX-License-Identifier: Apache-2.0

// I4c: convolution, bias, addition and ReLU in one kernel.

#include "in_turn.hpp"

using resnet::Format;
using resnet::Fusion;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I4c",
                                  .name = "fused",
                                  .after = "I4b",
                                  .change = "layers fused",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .infer = resnet::rungs::infer_in_turn},
                                 argc, argv);
}
