// SPDX-License-Identifier: Apache-2.0

// I4: cuDNN's plans are chosen by timing them on the device; --exhaustive times all there are.

#include "in_turn.hpp"

using resnet::Format;
using resnet::Fusion;
using resnet::PlanChoice;
using resnet::Precision;

int main(int argc, char** argv) {
  return resnet::rungs::run_rung({.number = "I4",
                                  .name = "half fused",
                                  .after = "I4c",
                                  .change = "cuDNN's plans are chosen by timing them",
                                  .precision = Precision::fp16,
                                  .format = Format::nhwc,
                                  .fusion = Fusion::full,
                                  .plans = PlanChoice::timed,
                                  .infer = resnet::rungs::infer_in_turn},
                                 argc, argv);
}
