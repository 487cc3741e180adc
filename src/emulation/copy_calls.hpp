// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies and fills as the calls of the program ask for them: what the pointers are, whether that
// fits what was asked for, and when the host goes on (CUDA: "API synchronization behavior").

#include "seam.hpp"

namespace penstock::emulation::detail {

/// A copy as a call asks for it: `height` rows of `width` bytes, or `depth` slices of them.
struct CopyRequest {
  void* destination;
  std::size_t destination_pitch;
  const void* source;
  std::size_t source_pitch;
  std::size_t width, height;
  cudaMemcpyKind kind;
  bool synchronous = false;  ///< by a call that is not one of the Async ones
  std::size_t depth = 1, destination_slice = 0, source_slice = 0;
};

inline CopyRequest flat_copy(void* destination, const void* source, std::size_t bytes,
                             cudaMemcpyKind kind) {
  return {destination, bytes, source, bytes, bytes, 1, kind};
}

/// The copy that cudaMemcpy3D asks for.
cudaError_t box_copy(const cudaMemcpy3DParms* params, CopyRequest& request);

/// A fill as a call asks for it.
struct FillRequest {
  void* data;
  int value;
  std::size_t width, height = 1, depth = 1;
  std::size_t pitch = 0, slice = 0;
  unsigned element = 1;  ///< bytes of the value; the width is in bytes all the same
};

/// The fill that cudaMemset3D asks for.
cudaError_t box_fill(const cudaPitchedPtr& memory, int value, const cudaExtent& extent,
                     FillRequest& request);

/// What is done for a request, checked against the memory; an empty request leaves a width of 0.
cudaError_t make_work(const Memory& memory, const CopyRequest& request, CopyWork& work);
cudaError_t make_work(const Memory& memory, const FillRequest& request, FillWork& work);

/// The host goes on when CUDA lets it: after a copy to or from page-locked memory, a copy into
/// pageable memory, or one between two places of the host, when it is done; after a copy from
/// pageable memory, when the source was read; after one within devices, at once.
cudaError_t copy_and_wait(Call& call, cudaStream_t handle, const CopyRequest& request);

/// Does not wait for page-locked memory. A pageable source is read before the call returns; copies
/// of more than 64 KiB of pageable memory, and those into it, block until they are done.
cudaError_t copy_async(Call& call, cudaStream_t handle, const CopyRequest& request);

/// The same between two devices, checked against the devices that the call names.
cudaError_t copy_between_devices(Call& call, cudaStream_t handle, const CopyRequest& request,
                                 int destination_device, int source_device);

/// Does not wait, except for page-locked memory when `synchronous`.
cudaError_t fill(Call& call, cudaStream_t handle, const FillRequest& request, bool synchronous);

}  // namespace penstock::emulation::detail
