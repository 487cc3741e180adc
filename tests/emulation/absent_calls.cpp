// SPDX-License-Identifier: Apache-2.0

// The calls that docs/emulation.md names as ones that do not link ("What does not link"), and one
// that does: with this last one alone the program links (absent_calls.cmake).

#include <cuda.h>
#include <cuda_runtime_api.h>

extern "C" unsigned __cudaPushCallConfiguration();  // NOLINT(bugprone-reserved-identifier)

namespace {

template <class Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

}  // namespace

int main() {
  const void* const calls[] = {
      address(&cudaMalloc),
      address(&__cudaPushCallConfiguration),
      address(&cudaLaunchKernel),
      address(&cudaFuncGetAttributes),
      address(&cudaFuncSetAttribute),
      address(&cudaOccupancyMaxActiveBlocksPerMultiprocessor),
      address(&cudaMemcpyToSymbol),
      address(&cudaGetSymbolAddress),
      address(&cudaCreateTextureObject),
      address(&cudaMallocArray),
      address(&cudaMemcpy2DToArray),
      address(&cudaGraphicsMapResources),
      address(&cudaImportExternalMemory),
      address(&cuMemCreate),
      address(&cuMemMap),
      address(&cuLaunchKernel),
  };
  const void* volatile last = nullptr;
  for (const void* const call : calls) last = call;
  return last == nullptr;
}
