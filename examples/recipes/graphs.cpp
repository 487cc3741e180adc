// SPDX-License-Identifier: Apache-2.0

// docs/recipes/graphs.md: a step of many kernels is captured once for each device slot, and
// replayed as a graph. What changes from step to step lies in device memory.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <penstock/penstock.hpp>

namespace {

constexpr std::uint64_t kSamples = 1000;
constexpr std::int64_t kBatch = 64;
constexpr int kLayers = 10;

struct Values {
  penstock::Tensor<std::int64_t, 1> value;
};

/// On the device: the number of the step, and a sum.
struct Model {
  std::int64_t step, sum;
};

/// One kernel of the step.
struct Layer {
  Values batch;
  Model* model;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.value.extent(0); ++i)
      model->sum += batch.value(i) * model->step;
  }
};

struct NextStep {
  Model* model;

  __host__ __device__ void operator()(std::int64_t) const { ++model->step; }
};

}  // namespace

int main() {
  const auto source = [](const penstock::Ticket& ticket, Values& batch) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      batch.value(static_cast<std::int64_t>(i)) = static_cast<std::int64_t>(ticket.samples[i]);
  };
  penstock::Prefetcher<Values> prefetcher{
      penstock::Layout<Values>{kBatch}.field(&Values::value, {}),
      {.samples = kSamples},
      source,
      {.workers = 2, .device_depth = 2, .epochs = 3}};

  const penstock::Stream stream;
  void* memory = nullptr;
  cudaMalloc(&memory, sizeof(Model));
  cudaMemsetAsync(memory, 0, sizeof(Model), stream.get());
  auto* const model = static_cast<Model*>(memory);

  penstock::StepGraph graphs;
  int steps = 0, captures = 0;
  std::int64_t expected = 0;
  while (const auto batch = prefetcher.next(stream.get())) {
    graphs.launch(batch, stream.get(), [&] {
      ++captures;  // The host is here when a graph is captured, not when it is replayed.
      for (int layer = 0; layer < kLayers; ++layer)
        penstock::for_each(stream.get(), 1, Layer{*batch, model});
      penstock::for_each(stream.get(), 1, NextStep{model});
    });
    for (const std::uint64_t sample : batch.ticket().samples)
      expected += kLayers * steps * static_cast<std::int64_t>(sample);
    ++steps;
  }

  Model result{};
  cudaMemcpyAsync(&result, memory, sizeof result, cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(memory);
  const bool right = result.sum == expected && result.step == steps;
  std::printf("graphs: %s; %d steps, %d captures\n", right ? "right" : "WRONG", steps, captures);
  return right && captures <= 4 ? 0 : 1;  // two slots; and full batches, and the shorter last one
}
