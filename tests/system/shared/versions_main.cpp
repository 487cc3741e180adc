// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" std::int64_t batches_here(std::uint64_t samples);
extern "C" std::int64_t batches_other(std::uint64_t samples);
extern "C" const char* name_here();
extern "C" const char* name_other();
extern "C" int version_here();
extern "C" int version_other();

int main() {
  const std::int64_t here = batches_here(100), other = batches_other(100);
  std::printf("version %d: %s, %lld batches\n", version_here(), name_here(),
              static_cast<long long>(here));
  std::printf("version %d: %s, %lld batches\n", version_other(), name_other(),
              static_cast<long long>(other));
  return here == 50 && other == 50 && std::strcmp(name_here(), name_other()) != 0 ? 0 : 1;
}
