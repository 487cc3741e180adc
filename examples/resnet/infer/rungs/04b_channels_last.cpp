// SPDX-License-Identifier: Apache-2.0

// I4b: channels last, the order that tensor cores read.

#include "in_turn.hpp"

using resnet::Format;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I4b",
                                  .name = "channels last",
                                  .after = "I4a",
                                  .change = "NHWC",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .infer = resnet::rungs::infer_in_turn},
                                 argc, argv);
}
