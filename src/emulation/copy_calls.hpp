// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies and fills that the program requests: classifies the pointers, checks them against the
// request, and decides when the host continues (CUDA: "API synchronization behavior").

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// A copy that a call requests: `height` rows of `width` bytes, or `depth` slices of such rows.
struct CopyRequest {
  void* destination;
  std::size_t destination_pitch;
  const void* source;
  std::size_t source_pitch;
  std::size_t width, height;
  cudaMemcpyKind kind;
  bool synchronous = false;  ///< requested by a call without the suffix Async
  std::size_t depth = 1, destination_slice = 0, source_slice = 0;
};

inline CopyRequest flat_copy(void* destination, const void* source, std::size_t bytes,
                             cudaMemcpyKind kind) {
  return {destination, bytes, source, bytes, bytes, 1, kind};
}

/// The copy that cudaMemcpy3D asks for.
cudaError_t box_copy(const cudaMemcpy3DParms* params, CopyRequest& request);

/// A fill that a call requests.
struct FillRequest {
  void* data;
  int value;
  std::size_t width, height = 1, depth = 1;
  std::size_t pitch = 0, slice = 0;
  unsigned element = 1;  ///< bytes of the value; the width is nevertheless in bytes
};

/// The fill that cudaMemset3D asks for.
cudaError_t box_fill(const cudaPitchedPtr& memory, int value, const cudaExtent& extent,
                     FillRequest& request);

/// Makes the work for a request, and checks it against the memory. An empty request gives a width
/// of 0.
cudaError_t make_work(const Memory& memory, const CopyRequest& request, CopyWork& work);
cudaError_t make_work(const Memory& memory, const FillRequest& request, FillWork& work);

/// Copies, and waits as long as CUDA does. A copy to or from page-locked memory, into pageable
/// memory or within the host blocks until it is done. A copy from pageable memory to a device
/// blocks until the source was read. A copy within devices does not block.
cudaError_t copy_and_wait(Call& call, cudaStream_t handle, const CopyRequest& request);

/// Copies without a wait if the host memory is page-locked. A pageable source is read before the
/// call returns. Copies of more than 64 KiB of pageable memory, and copies into it, block until
/// they are done.
cudaError_t copy_async(Call& call, cudaStream_t handle, const CopyRequest& request);

/// Like copy_async, between two devices. Checks the pointers against the devices that the call
/// names.
cudaError_t copy_between_devices(Call& call, cudaStream_t handle, const CopyRequest& request,
                                 int destination_device, int source_device);

/// Fills memory. It only waits if `synchronous` is set and the memory is page-locked.
cudaError_t fill(Call& call, cudaStream_t handle, const FillRequest& request, bool synchronous);

}  // namespace penstock::emulation::detail
