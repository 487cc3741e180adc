// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <cstdio>

extern "C" int cudaGetDeviceCount(int* count);
extern "C" std::uint64_t pipeline_one(std::uint64_t samples, std::uint64_t epochs);

int main() {
  int devices = 0;
  const int error = cudaGetDeviceCount(&devices);
  std::printf("main() runs: %d devices, error %d, sum %llu\n", devices, error,
              static_cast<unsigned long long>(pipeline_one(1000, 1)));
}
