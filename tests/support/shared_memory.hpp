// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests do with memory, events and pools that several processes have.

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdint>
#include <penstock/emulation.hpp>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/other_process.hpp"

namespace penstock::test {

inline cudaError_t open_here(void** data, const OtherProcess::Answer& made) {
  return cudaIpcOpenMemHandle(data, OtherProcess::handle_of<cudaIpcMemHandle_t>(made.bytes),
                              cudaIpcMemLazyEnablePeerAccess);
}
inline cudaError_t open_here(cudaEvent_t* event, const OtherProcess::Answer& made) {
  return cudaIpcOpenEventHandle(event, OtherProcess::handle_of<cudaIpcEventHandle_t>(made.bytes));
}

/// A pool whose memory other processes can open.
inline cudaMemPool_t make_shared_pool(
    cudaMemAllocationHandleType type = cudaMemHandleTypePosixFileDescriptor) {
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.handleTypes = type;
  props.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaMemPoolCreate(&pool, &props));
  return pool;
}

/// The same pool as another process gets it. The descriptor is closed again.
inline cudaMemPool_t import_here(cudaMemPool_t pool) {
  int descriptor = -1;
  REQUIRE_CUDA(cudaMemPoolExportToShareableHandle(&descriptor, pool,
                                                  cudaMemHandleTypePosixFileDescriptor, 0));
  cudaMemPool_t imported = nullptr;
  REQUIRE_CUDA(cudaMemPoolImportFromShareableHandle(
      &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
      cudaMemHandleTypePosixFileDescriptor, 0));
  ::close(descriptor);
  return imported;
}

inline int first_of(const void* memory) {
  int value = 0;
  CHECK_CUDA(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

/// A stream that is left to `start_again`.
inline cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

/// Frees everything, and a device that has failed works again.
inline void start_again() {
  penstock::emulation::reset(penstock::emulation::options());
}

}  // namespace penstock::test
