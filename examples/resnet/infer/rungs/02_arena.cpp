// SPDX-License-Identifier: Apache-2.0

// I2: device memory is allocated once (DeviceArena): see in_turn.hpp. Host memory is still
// pageable.

#include "in_turn.hpp"

int main(int argc, char** argv) {
  return resnet::rungs::run_rung(
      {.number = "I2",
       .name = "arena",
       .change = "device memory that is reused",
       .infer = resnet::rungs::infer_in_turn<penstock::HostMemory::pageable>},
      argc, argv);
}
