// SPDX-License-Identifier: Apache-2.0
#pragma once

// A handle of cuDNN: one thread at a time.
//
//   const Handle handle = make_handle();
//   set_stream(handle, stream);              // of what runs with it from here on

#include <cudnn.h>

#include <memory>
#include <penstock/error.hpp>
#include <string>

namespace resnet::cudnn {

struct CloseHandle {
  void operator()(cudnnContext* handle) const { cudnnDestroy(handle); }
};
using Handle = std::unique_ptr<cudnnContext, CloseHandle>;

inline void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw penstock::CudaError(cudaErrorUnknown,
                              std::string(call) + " failed: " + cudnnGetErrorString(status));
}

/// Allocates, and may synchronise. Throws CudaError.
inline Handle make_handle() {
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "cudnnCreate");
  return Handle(handle);
}

/// Throws CudaError.
inline void set_stream(const Handle& handle, cudaStream_t stream) {
  check(cudnnSetStream(handle.get(), stream), "cudnnSetStream");
}

}  // namespace resnet::cudnn
