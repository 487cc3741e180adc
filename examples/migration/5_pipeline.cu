// SPDX-License-Identifier: Apache-2.0

// Step 5: the pipeline. Workers load batches of 32 images into page-locked memory, a copy stream
// brings them to the device, and the histograms come back without a wait.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <nvtx3/nvtx3.hpp>
#include <penstock/cuda.hpp>
#include <penstock/layout.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/sampler.hpp>
#include <penstock/tensor.hpp>
#include <span>

#include "images.hpp"
#include "kernels.cuh"

namespace {

using namespace migration;

constexpr int kBatch = 32;

struct Batch {
  penstock::Tensor<std::uint8_t, 4> pixels;  // image x height x width x 3
};

void process(const penstock::FileFolder& files, Results& results) {
  Shape shape = Loader(files).shape();
  penstock::Prefetcher<Batch> prefetcher{
      penstock::Layout<Batch>{kBatch}.field(&Batch::pixels, {shape.height, shape.width, 3}),
      {.samples = results.images()},
      penstock::per_sample(
          penstock::per_worker([&] { return Loader(files); },  // a loader for each worker
                               [shape](Loader& load, const penstock::Sample& sample, Batch& batch) {
                                 load(sample.index, &batch.pixels(sample.row, 0, 0, 0), shape);
                               }))};
  penstock::Readback<std::uint32_t[]> histograms{4, kBatch * kBins};
  const penstock::Stream stream;

  shape.images = kBatch;
  auto* const device_rows = device_array<std::uint16_t>(shape.values());
  auto* const device_blurred = device_array<std::uint8_t>(shape.values());
  auto* const device_counts = device_array<std::uint32_t>(kBatch * kBins);

  std::uint64_t image = 0;
  while (const auto batch = prefetcher.next(stream.get())) {
    const nvtx3::scoped_range step{"step"};
    shape.images = static_cast<int>(batch->pixels.extent(0));  // the last batch may be shorter
    const auto counts = static_cast<std::size_t>(shape.images * kBins);

    blur_rows<<<kBlocks, kThreads, 0, stream.get()>>>(batch->pixels.data_handle(), device_rows,
                                                      shape);
    blur_columns<<<kBlocks, kThreads, 0, stream.get()>>>(device_rows, device_blurred, shape);
    check(cudaMemsetAsync(device_counts, 0, counts * sizeof(std::uint32_t), stream.get()));
    count_values<<<kBlocks, kThreads, 0, stream.get()>>>(device_blurred, device_counts, shape);
    check(cudaGetLastError());
    histograms.push(device_counts, counts, stream.get(),
                    [&results, image](std::span<const std::uint32_t> values) mutable {
                      for (std::size_t i = 0; i < values.size(); i += kBins)
                        results.add(image++, values.data() + i);
                    });
    image += static_cast<std::uint64_t>(shape.images);
  }
  histograms.drain();

  check(cudaFree(device_rows));
  check(cudaFree(device_blurred));
  check(cudaFree(device_counts));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, process);
}
