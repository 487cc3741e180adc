// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of CUDA's calls have to know of the version of the headers, 12.4 or newer.

#include <cuda_runtime_api.h>

#include <cstddef>

namespace penstock::test {

/// Whether the runtime tells the device of a stream. Where it does not, a stream of another device
/// is refused only when an event is recorded on it.
inline constexpr bool kStreamsTellTheirDevice = CUDART_VERSION >= 12080;

inline cudaError_t device_of_stream(cudaStream_t stream, int* device) {
#if CUDART_VERSION >= 12080
  return cudaStreamGetDevice(stream, device);
#else
  static_cast<void>(stream);
  static_cast<void>(device);
  return cudaErrorNotSupported;
#endif
}

/// cudaStreamGetCaptureInfo with the edges, which CUDA 12 calls _v3.
inline cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nodes, edges, count);
#else
  return cudaStreamGetCaptureInfo_v3(stream, status, nullptr, nullptr, nodes, edges, count);
#endif
}

/// cudaMemAdvise and cudaMemPrefetchAsync with a location, which CUDA 12 calls _v2.
inline cudaError_t advise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
#if CUDART_VERSION >= 13000
  return cudaMemAdvise(data, bytes, advice, location);
#else
  return cudaMemAdvise_v2(data, bytes, advice, location);
#endif
}
inline cudaError_t prefetch(const void* data, std::size_t bytes, cudaMemLocation location,
                            cudaStream_t stream, unsigned flags = 0) {
#if CUDART_VERSION >= 13000
  return cudaMemPrefetchAsync(data, bytes, location, flags, stream);
#else
  return cudaMemPrefetchAsync_v2(data, bytes, location, flags, stream);
#endif
}

}  // namespace penstock::test
