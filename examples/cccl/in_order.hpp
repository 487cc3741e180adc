// SPDX-License-Identifier: Apache-2.0
#pragma once

// in_order(stream, temporary, call): calls `call(policy)`, which is to run Thrust's algorithms with
// that policy, so that they take their place in the order of `stream`. Does not block, but for
// algorithms that return a value.
//
// Compiled by nvcc, the algorithms are kernels on the stream, and their temporary memory is that of
// `temporary`, in stream order. Compiled by a C++ compiler, `call` is a host function of the
// emulated stream, and the algorithms run there, one after the other.

#ifndef __CUDACC__
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP  // before anything of Thrust
#endif

#include <cuda_runtime_api.h>
#include <thrust/execution_policy.h>

#include <cstddef>
#include <cstdint>
#include <penstock/memory_resource.hpp>

#ifndef __CUDACC__
#include <penstock/launch.hpp>
#endif

namespace examples {

#ifdef __CUDACC__

/// What Thrust asks for temporary memory. It gives memory back before the kernels that use it have
/// run, so the memory has to be reused in stream order.
struct TemporaryMemory {
  using value_type = char;

  char* allocate(std::ptrdiff_t bytes) {
    return static_cast<char*>(resource.allocate(stream, static_cast<std::size_t>(bytes), 256));
  }
  void deallocate(char* memory, std::size_t bytes) {
    resource.deallocate(stream, memory, bytes, 256);
  }

  penstock::DeviceArenaResource& resource;
  cudaStream_t stream;
};

template <class Call>
void in_order(cudaStream_t stream, penstock::DeviceArenaResource& temporary, Call call) {
  TemporaryMemory memory{temporary, stream};
  call(thrust::cuda::par_nosync(memory).on(stream));
}

#else

template <class Call>
void in_order(cudaStream_t stream, penstock::DeviceArenaResource&, Call call) {
  penstock::for_each(stream, 1, [call](std::int64_t) { call(thrust::cpp::par); });
}

#endif

}  // namespace examples
