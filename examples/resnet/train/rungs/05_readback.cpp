// SPDX-License-Identifier: Apache-2.0

// T5: loss and accuracy come back without stopping anybody (Readback): see readback_loop.hpp.

#include "readback_loop.hpp"

int main(int argc, char** argv) {
  return resnet::run_rung({.number = "T5",
                           .name = "readback",
                           .after = "T4c",
                           .change = "the loss comes back without a stop",
                           .train = resnet::train_with_readback},
                          argc, argv);
}
