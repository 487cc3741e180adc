// SPDX-License-Identifier: Apache-2.0
//
// A race that RMM has at this commit: https://github.com/rapidsai/rmm/issues/2489, found elsewhere
// and mended three weeks later. It shows that the emulated runtime and ThreadSanitizer see one in a
// real client. `wrong`: a pool gives stream C memory that stream A still writes, since stream B, in
// whose list the memory was in between, waited for A and did not record it. `right`: the host waits
// for A.
#include <cuda_runtime_api.h>
#include <cstdlib>
#include <iostream>
#include <rmm/cuda_stream.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <string_view>

namespace {

constexpr std::size_t kUnit =
    4096;  // Each eight bytes of a race take ThreadSanitizer a tenth of a millisecond.
constexpr std::size_t kAlignment = 256;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::cerr << cudaGetErrorString(error) << '\n';
  std::exit(1);
}

}  // namespace

int main(int count, char** words) {
  const bool right = count == 2 && std::string_view(words[1]) == "right";
  rmm::mr::cuda_memory_resource memory;
  rmm::mr::pool_memory_resource pool{memory, 4 * kUnit, 4 * kUnit};
  const rmm::cuda_stream other, a, b, c;
  const auto allocate = [&](const rmm::cuda_stream& stream, std::size_t bytes) {
    return static_cast<std::byte*>(pool.allocate(stream.view(), bytes, kAlignment));
  };
  std::byte* front = allocate(other, 2 * kUnit);
  std::byte* back = allocate(a, 2 * kUnit);
  check(cudaMemsetAsync(back, 1, 2 * kUnit, a.value()));
  pool.deallocate(a.view(), back, 2 * kUnit, kAlignment);
  pool.deallocate(other.view(), front, 2 * kUnit, kAlignment);
  allocate(b, 3 * kUnit);  // Both halves come into B's list, and the last quarter stays there,
  std::byte* taken = allocate(c, kUnit);  // until C takes it.
  if (right) check(cudaStreamSynchronize(a.value()));
  check(cudaMemsetAsync(taken, 2, kUnit, c.value()));
  check(cudaDeviceSynchronize());
  if (taken != back + kUnit) {
    std::cerr << "the pool did not give C what A uses: does this commit of RMM choose blocks "
                 "otherwise?\n";
    return 1;
  }
}
