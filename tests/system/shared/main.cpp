// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <cstdio>
#include <thread>

extern "C" std::uint64_t pipeline_one(std::uint64_t samples, std::uint64_t epochs);
extern "C" std::uint64_t pipeline_two(std::uint64_t samples, std::uint64_t epochs);

int main() {
  std::uint64_t one = 0, two = 0;
  std::thread first([&] { one = pipeline_one(1000, 3); });
  std::thread second([&] { two = pipeline_two(2000, 2); });
  first.join();
  second.join();
  const bool right = one == 3 * 999 * 1000 / 2 && two == 2 * 1999 * 2000 / 2;
  std::printf("%s\n", right ? "both pipelines are right" : "WRONG");
  return right ? 0 : 1;
}
