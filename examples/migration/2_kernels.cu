// SPDX-License-Identifier: Apache-2.0

// Step 2: the blur and the histogram are kernels. Around them is what everyone writes first: memory
// where it is needed, a copy, kernels, a wait, a copy back.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <nvtx3/nvtx3.hpp>
#include <vector>

#include "images.hpp"
#include "kernels.cuh"

namespace {

using namespace migration;

void process(const penstock::FileFolder& files, Results& results) {
  Loader load(files);
  const Shape shape = load.shape();
  const auto values = static_cast<std::size_t>(shape.values());
  std::vector<std::uint8_t> pixels(values);
  std::vector<std::uint32_t> counts(kBins);

  for (std::uint64_t i = 0; i < results.images(); ++i) {
    const nvtx3::scoped_range step{"step"};
    load(i, pixels.data(), shape);

    auto* const device_pixels = device_array<std::uint8_t>(shape.values());
    auto* const device_rows = device_array<std::uint16_t>(shape.values());
    auto* const device_blurred = device_array<std::uint8_t>(shape.values());
    auto* const device_counts = device_array<std::uint32_t>(kBins);

    check(cudaMemcpy(device_pixels, pixels.data(), values, cudaMemcpyHostToDevice));
    blur_rows<<<kBlocks, kThreads>>>(device_pixels, device_rows, shape);
    blur_columns<<<kBlocks, kThreads>>>(device_rows, device_blurred, shape);
    check(cudaMemset(device_counts, 0, kBins * sizeof(std::uint32_t)));
    count_values<<<kBlocks, kThreads>>>(device_blurred, device_counts, shape);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(counts.data(), device_counts, kBins * sizeof(std::uint32_t),
                     cudaMemcpyDeviceToHost));

    check(cudaFree(device_pixels));
    check(cudaFree(device_rows));
    check(cudaFree(device_blurred));
    check(cudaFree(device_counts));
    results.add(i, counts.data());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, process);
}
