// SPDX-License-Identifier: Apache-2.0
#pragma once

// What lets a plain C++ compiler take minimal.cu, so that it runs over penstock::emulated where
// there is no GPU. CMake includes this ahead of it, and rewrites its one launch,
//   train_step<<<132, 256, 0, stream>>>(*batch, loss)   as
//   kernel_on_cpu::launch(train_step, stream, *batch, loss).
// The kernel then runs as one block of one thread, in stream order. That serves kernels that go
// through their data in strides of the whole grid and need no other thread of their block.

#include <cuda_runtime_api.h>  // makes __global__ mean nothing here

#include <atomic>
#include <functional>
#include <memory>
#include <type_traits>

inline constexpr uint3 threadIdx{0, 0, 0};
inline constexpr uint3 blockIdx{0, 0, 0};
inline constexpr uint3 blockDim{1, 1, 1};
inline constexpr uint3 gridDim{1, 1, 1};

inline float atomicAdd(float* address, float value) {
  return std::atomic_ref(*address).fetch_add(value);
}

namespace kernel_on_cpu {

/// Like a kernel launch: returns at once, and reports a failure through the stream's later calls
/// alone.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  using Task = std::function<void()>;
  auto task = std::make_unique<Task>([=] { kernel(arguments...); });
  const auto run = [](void* address) {
    const std::unique_ptr<Task> owned(static_cast<Task*>(address));
    (*owned)();
  };
  if (cudaLaunchHostFunc(stream, run, task.get()) == cudaSuccess)
    static_cast<void>(task.release());  // The host function owns it now.
}

}  // namespace kernel_on_cpu
