// SPDX-License-Identifier: Apache-2.0

// What resize_batch costs the GPU: a batch of 256 images to 224 x 224, four channels of fp16, by
// the device's clock. The argument is the side of the crop in pixels. `share` is the part of the
// GPU's time that 20,000 images a second take.

#include <benchmark/benchmark.h>
#include <cuda_fp16.h>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <penstock/images/resize_batch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace {

namespace images = penstock::images;

constexpr std::int64_t kBatch = 256;

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw penstock::CudaError(status, call);
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <class T>
std::unique_ptr<T, Free> device_memory(std::int64_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(count) * sizeof(T)), "cudaMalloc");
  return std::unique_ptr<T, Free>(static_cast<T*>(memory));
}

void resize(benchmark::State& state) {
  const auto side = static_cast<std::int32_t>(state.range(0));
  const images::OutputFormat format{.size = {224, 224}, .channels = 4, .mean = {0.5f, 0.5f, 0.5f}};
  const std::int64_t bytes = std::int64_t{3} * side * side;
  images::View view = images::whole({side, side});
  view.step_y = view.step_x = side / 224.0;
  view.output = format.size;
  const std::vector<images::ImageGeometry> geometry(kBatch, {0, std::int64_t{3} * side, view});

  const auto pixels = device_memory<std::uint8_t>(kBatch * bytes);
  const auto views = device_memory<images::ImageGeometry>(kBatch);
  const auto out = device_memory<__half>(kBatch * format.values());
  check(cudaMemset(pixels.get(), 100, static_cast<std::size_t>(kBatch * bytes)), "cudaMemset");
  check(cudaMemcpy(views.get(), geometry.data(), kBatch * sizeof(geometry[0]), cudaMemcpyDefault),
        "cudaMemcpy");
  const images::ImageBatch batch{pixels.get(), bytes, views.get(), kBatch};

  const penstock::Stream stream;
  penstock::Event begin(cudaEventDefault), end(cudaEventDefault);
  images::resize_batch(stream.get(), batch, format, out.get());  // The first call loads the kernel.
  stream.synchronize();
  double seconds = 0;
  for (auto _ : state) {
    begin.record(stream.get());
    images::resize_batch(stream.get(), batch, format, out.get());
    end.record(stream.get());
    end.synchronize();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    state.SetIterationTime(milliseconds / 1000.0);
    seconds += milliseconds / 1000.0;
  }
  const double batches = static_cast<double>(state.iterations());
  state.counters["images/s"] = batches * kBatch / seconds;
  state.counters["share"] = 20'000 * seconds / (batches * kBatch);
}

// An upscaling, a crop as scaled decoding leaves it, a whole image of 500 x 375, larger
// photographs.
BENCHMARK(resize)->Arg(150)->Arg(260)->Arg(433)->Arg(900)->Arg(1800)->UseManualTime();

}  // namespace

BENCHMARK_MAIN();
