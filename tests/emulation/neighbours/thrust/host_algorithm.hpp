// SPDX-License-Identifier: Apache-2.0
//
// Two algorithms of Thrust are kernels, and RMM's tests of rmm::device_buffer call them. In their
// place: host functions in the stream of the policy, waited for, as Thrust waits.
#pragma once

#include <thrust/detail/config.h>
#include <thrust/system/cuda/detail/execution_policy.h>

#include <cuda_runtime_api.h>
#include <stdexcept>

namespace neighbours {

template <typename Policy, typename Function>
void run_in_stream(const Policy& policy, Function function) {
  const auto stream =
      thrust::cuda_cub::stream(thrust::detail::derived_cast(thrust::detail::strip_const(policy)));
  const auto call = [](void* data) { (*static_cast<Function*>(data))(); };
  if (cudaLaunchHostFunc(stream, call, &function) != cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess) {
    throw std::runtime_error("the host function in place of a kernel failed");
  }
}

}  // namespace neighbours
