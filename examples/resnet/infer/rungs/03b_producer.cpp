// SPDX-License-Identifier: Apache-2.0

// I3b: the workers, and their page-locked memory, are the library's (BatchProducer, PinnedPool); a
// copy is queued, and its block comes back by itself: see in_turn.hpp.

#include "in_turn.hpp"

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I3b",
                                  .name = "producer",
                                  .after = "I3",
                                  .change = "the workers are the library's",
                                  .infer = resnet::rungs::infer_in_turn},
                                 argc, argv);
}
