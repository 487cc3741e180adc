// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state of the runtime for each host thread.

#include <driver_types.h>

#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

struct ThreadState {
  std::uint64_t number = 0;  ///< number of the thread in the process, from 1; never reused
  std::uint64_t era = 0;     ///< the runtime to which the other members belong
  int device = 0;            ///< the current device
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  bool in_host_function = false;
  std::uint64_t call = 0;  ///< number of the current call, if calls are observed
};

/// Returns the state of this thread. It exists until the thread ends, and for the main thread
/// during static destructors too.
ThreadState& this_thread();

/// Marks this thread as running a function of the program that may not call CUDA.
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
