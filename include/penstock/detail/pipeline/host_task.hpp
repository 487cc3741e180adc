// SPDX-License-Identifier: Apache-2.0
#pragma once

// The host form of for_each (launch.hpp): a functor queued on a stream, and its owner. Outside a
// capture the task deletes itself after its only run. A captured task runs at each launch of the
// graph, and the graph owns it.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <penstock/error.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Does nothing. Only penstock::emulated defines it. On the real CUDA runtime a host function would
/// run `op` on the CPU with pointers to device memory; such a program does not link, and this name
/// in the linker's message says why. Compile the source that the message names with nvcc.
void for_each_on_the_real_cuda_runtime_has_to_be_compiled_by_nvcc() noexcept;

/// A call of for_each, on the heap from the launch to the run.
template <class Op>
struct HostTask {
  std::int64_t n;
  Op op;

  // noexcept: nothing could catch an exception of `op`. It terminates the program, as a failed
  // assertion in a kernel does.
  void run() noexcept {
    for (std::int64_t i = 0; i < n; ++i) op(i);
  }
  static void CUDART_CB run_once(void* task) {
    const std::unique_ptr<HostTask> self(static_cast<HostTask*>(task));
    self->run();
  }
  static void CUDART_CB run_again(void* task) { static_cast<HostTask*>(task)->run(); }
  static void CUDART_CB destroy(void* task) { delete static_cast<HostTask*>(task); }
};

/// The graph that `stream` is being captured into; nullptr if it is not being captured.
inline cudaGraph_t capturing_graph(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph), "cudaStreamGetCaptureInfo");
  return status == cudaStreamCaptureStatusActive ? graph : nullptr;
}

/// Transfers `task` to `graph`, which destroys it with the last executable graph made of it.
template <class Task>
Task* give_to_graph(cudaGraph_t graph, std::unique_ptr<Task> task) {
  cudaUserObject_t owner = nullptr;
  check(cudaUserObjectCreate(&owner, task.get(), &Task::destroy, 1, cudaUserObjectNoDestructorSync),
        "cudaUserObjectCreate");
  Task* given = task.release();
  const cudaError_t status = cudaGraphRetainUserObject(graph, owner, 1, cudaGraphUserObjectMove);
  if (status != cudaSuccess) cudaUserObjectRelease(owner);
  check(status, "cudaGraphRetainUserObject");
  return given;
}

}  // namespace penstock::detail
