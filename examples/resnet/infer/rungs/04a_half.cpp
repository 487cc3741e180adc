// SPDX-License-Identifier: Apache-2.0

// I4a: fp16. (int8: by --prepared.)

#include "in_turn.hpp"

using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I4a",
                                  .name = "half",
                                  .after = "I3b",
                                  .change = "fp16",
                                  .precision = Precision::fp16,
                                  .infer = resnet::rungs::infer_in_turn},
                                 argc, argv);
}
