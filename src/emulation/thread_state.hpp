// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the runtime keeps for each host thread.

#include <driver_types.h>

#include <cstdint>

namespace penstock::emulation::detail {

struct ThreadState {
  std::uint64_t number = 0;  ///< of the thread in the process, from 1; never used again
  std::uint64_t era = 0;     ///< of the runtime that the rest belongs to
  int device = 0;            ///< the current device
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  bool in_host_function = false;
  std::uint64_t call = 0;  ///< number of the call that is under way, while calls are observed
};

/// Lives as long as its thread, static destructors of the main thread included.
ThreadState& this_thread();

/// Marks this thread as being inside a function of the program's that may not call CUDA.
class [[nodiscard]] HostFunctionScope {
 public:
  HostFunctionScope() : before_(this_thread().in_host_function) {
    this_thread().in_host_function = true;
  }
  ~HostFunctionScope() { this_thread().in_host_function = before_; }
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;

 private:
  bool before_;
};

}  // namespace penstock::emulation::detail
