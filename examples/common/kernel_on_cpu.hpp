// SPDX-License-Identifier: Apache-2.0
#pragma once

// What lets a plain C++ compiler take a .cu file, so that it runs over penstock::emulated where
// there is no GPU. kernel_on_cpu.cmake includes this ahead of it, and rewrites its launches,
//   train_step<<<132, 256, 0, stream>>>(*batch, loss)   as
//   kernel_on_cpu::launch<train_step>(stream, *batch, loss).
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

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref(*address).fetch_add(value);
}

namespace kernel_on_cpu {

using Task = std::function<void()>;

/// A host function of its own for each kernel: a trace shows its name.
template <auto kernel>
void run(void* address) {
  const std::unique_ptr<Task> owned(static_cast<Task*>(address));
  (*owned)();
}

template <auto kernel, class... Parameters>
void launch_as(void (*)(Parameters...), cudaStream_t stream,
               std::type_identity_t<Parameters>... arguments) {
  auto task = std::make_unique<Task>([=] { kernel(arguments...); });
  if (cudaLaunchHostFunc(stream, &run<kernel>, task.get()) == cudaSuccess)
    static_cast<void>(task.release());  // The host function owns it now.
}

/// Like a kernel launch: returns at once, and reports a failure through the stream's later calls
/// alone.
template <auto kernel, class... Arguments>
void launch(cudaStream_t stream, const Arguments&... arguments) {
  launch_as<kernel>(kernel, stream, arguments...);
}

}  // namespace kernel_on_cpu
