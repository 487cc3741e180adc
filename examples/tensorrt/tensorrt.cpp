// SPDX-License-Identifier: Apache-2.0

// tensorrt: batches for a network of TensorRT. A batch's memory is reused as soon as the network
// has read it. The network computes the mean of each colour of each picture, so that its answers
// can be checked. Exit codes: 0 done, 1 a check failed or an exception.

#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <penstock/penstock.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "consumed_input.hpp"

namespace {

constexpr std::uint64_t kPictures = 4096;
constexpr std::int64_t kBatch = 64, kColours = 3, kSide = 32;

struct Pictures {
  penstock::Tensor<float, 4> pixels;  // picture x colour x row x column
};

float pixel(std::uint64_t picture, std::int64_t place) {
  return static_cast<float>((picture * 31 + static_cast<std::uint64_t>(place) * 7) % 256);
}

struct Logger : nvinfer1::ILogger {
  void log(Severity severity, const char* message) noexcept override {
    if (severity <= Severity::kWARNING) std::fprintf(stderr, "tensorrt: %s\n", message);
  }
};

template <class T>
std::unique_ptr<T> made(T* object, const char* what) {
  if (object == nullptr) throw std::runtime_error(std::string(what) + " failed");
  return std::unique_ptr<T>(object);
}
void require(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string(what) + " failed");
}

/// pixels -> means: picture x colour.
std::unique_ptr<nvinfer1::IHostMemory> plan(nvinfer1::ILogger& logger) {
  const auto builder = made(nvinfer1::createInferBuilder(logger), "createInferBuilder");
  const auto network = made(builder->createNetworkV2(0), "createNetworkV2");
  const nvinfer1::Dims shape{4, {kBatch, kColours, kSide, kSide}};
  nvinfer1::ITensor* const pixels = network->addInput("pixels", nvinfer1::DataType::kFLOAT, shape);
  require(pixels != nullptr, "addInput");
  constexpr std::uint32_t kRowsAndColumns = 1u << 2 | 1u << 3;
  nvinfer1::IReduceLayer* const mean =
      network->addReduce(*pixels, nvinfer1::ReduceOperation::kAVG, kRowsAndColumns, false);
  require(mean != nullptr, "addReduce");
  mean->getOutput(0)->setName("means");
  network->markOutput(*mean->getOutput(0));
  const auto config = made(builder->createBuilderConfig(), "createBuilderConfig");
  return made(builder->buildSerializedNetwork(*network, *config), "buildSerializedNetwork");
}

/// Of one batch. `first`: the number of its first picture.
int wrong_means(std::uint64_t first, std::span<const float> means) {
  int wrong = 0;
  constexpr std::int64_t kPixels = kSide * kSide;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const std::uint64_t picture = first + i / kColours;
    const auto colour = static_cast<std::int64_t>(i % kColours);
    double sum = 0;
    for (std::int64_t j = 0; j < kPixels; ++j) sum += pixel(picture, colour * kPixels + j);
    wrong += std::abs(means[i] - sum / kPixels) > 1e-2 ? 1 : 0;
  }
  return wrong;
}

int run() {
  Logger logger;
  const auto runtime = made(nvinfer1::createInferRuntime(logger), "createInferRuntime");
  const auto bytes = plan(logger);
  const auto engine =
      made(runtime->deserializeCudaEngine(bytes->data(), bytes->size()), "deserializeCudaEngine");
  const auto context = made(engine->createExecutionContext(), "createExecutionContext");

  const auto layout =
      penstock::Layout<Pictures>{kBatch}.field(&Pictures::pixels, {kColours, kSide, kSide});
  const auto fill = [](const penstock::Ticket& ticket, Pictures& batch) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      for (std::int64_t j = 0; j < kColours * kSide * kSide; ++j)
        (&batch.pixels(static_cast<std::int64_t>(i), 0, 0, 0))[j] = pixel(ticket.samples[i], j);
  };
  penstock::Prefetcher<Pictures> prefetcher{layout, {.samples = kPictures}, fill, {.workers = 2}};

  const penstock::Stream stream;
  constexpr std::size_t kMeans = kBatch * kColours;
  penstock::DeviceArena arena(1, kMeans * sizeof(float));
  const penstock::DeviceSlot means = arena.acquire(stream.get());
  require(context->setTensorAddress("means", means.data()), "setTensorAddress");
  std::size_t checked = 0;
  int wrong = 0;
  penstock::Readback<float[]> answers(8, kMeans);  // NOLINT(modernize-avoid-c-arrays)
  {
    examples::ConsumedInput<nvinfer1::IExecutionContext> input(*context, stream.get());
    while (auto batch = prefetcher.next(input.stream())) {
      const std::uint64_t first = batch.ticket().samples[0];
      require(context->setInputTensorAddress("pixels", batch->pixels.data_handle()),
              "setInputTensorAddress");
      input.enqueue(std::move(batch));
      answers.push(reinterpret_cast<const float*>(means.data()), kMeans, stream.get(),
                   [&, first](std::span<const float> values) {
                     wrong += wrong_means(first, values);
                     checked += values.size();
                   });
    }
  }
  answers.drain();
  std::printf("%zu means, %d wrong\n", checked, wrong);
  return wrong == 0 && checked == kPictures * kColours ? 0 : 1;
}

}  // namespace

int main() try { return run(); } catch (const std::exception& error) {
  std::fprintf(stderr, "tensorrt: %s\n", error.what());
  return 1;
}
