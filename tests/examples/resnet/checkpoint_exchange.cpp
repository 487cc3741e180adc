// SPDX-License-Identifier: Apache-2.0

// checkpoint_exchange write FILE    trains ResNet-8 for some steps, saves it, infers two images
// checkpoint_exchange read FILE     loads it, and infers them
//
// Prints the first logits. exchange_test.py gives the file to PyTorch in between.

#include <cstdio>
#include <cstring>
#include <exception>

#include "../../../examples/resnet/model/checkpoint.hpp"
#include "training.hpp"

namespace resnet::test {
namespace {

void run(bool write, const char* path) {
  Training training({architecture_of("resnet8", 10), {2, 3, 16, 16}});
  const cudaStream_t stream = training.stream.get();
  if (write) {
    for (int i = 0; i < 60; ++i) training.step();  // until the running statistics are the batch's
    save_checkpoint(path, training.network, {test_sgd, {}}, stream);
  } else {
    load_checkpoint(path, training.network, stream);
  }
  training.infer();
  const std::vector<float> logits = training.logits();
  std::printf("resnet8");
  for (std::size_t i = 0; i < 8; ++i) std::printf(" %.6f", static_cast<double>(logits[i]));
  std::printf("\n");
}

}  // namespace
}  // namespace resnet::test

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    resnet::test::run(std::strcmp(argv[1], "write") == 0, argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_exchange: %s\n", error.what());
    return 1;
  }
}
