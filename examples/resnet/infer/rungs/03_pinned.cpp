// SPDX-License-Identifier: Apache-2.0

// I3: the workers are the library's (BatchProducer), and fill page-locked memory (PinnedPool),
// which the device reads by itself: see in_turn.hpp.

#include "in_turn.hpp"

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I3",
                                  .name = "pinned",
                                  .change = "page-locked host memory",
                                  .infer = resnet::rungs::infer_in_turn},
                                 argc, argv);
}
