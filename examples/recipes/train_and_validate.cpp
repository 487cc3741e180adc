// SPDX-License-Identifier: Apache-2.0

// docs/recipes/train-and-validate.md: an epoch of training, then all of the validation data, in
// turn. The model is a line, y = a x + b, fitted on the device; each epoch must make it better.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <penstock/penstock.hpp>

namespace {

constexpr std::uint64_t kTraining = 1000, kValidation = 130, kEpochs = 5;
constexpr std::int64_t kBatch = 50;

struct Points {
  penstock::Tensor<float, 1> x, y;  // point
};

/// On the device: the line, and what the validation adds up.
struct Model {
  float a, b;
  float squared_error;
  std::int64_t points;
};

struct Train {
  Points batch;
  Model* model;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.x.extent(0); ++i) {
      const float error = model->a * batch.x(i) + model->b - batch.y(i);
      model->a -= 0.002f * error * batch.x(i);
      model->b -= 0.002f * error;
    }
  }
};

struct Validate {
  Points batch;
  Model* model;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.x.extent(0); ++i) {
      const float error = model->a * batch.x(i) + model->b - batch.y(i);
      model->squared_error += error * error;
      ++model->points;
    }
  }
};

/// Points of the line y = 3 x + 1; those of the validation lie between those of the training.
void fill(const penstock::Ticket& ticket, Points& batch, float shift) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    batch.x(row) = static_cast<float>(ticket.samples[i] % 100) / 100 + shift;
    batch.y(row) = 3 * batch.x(row) + 1;
  }
}

}  // namespace

int main() {
  const auto layout = penstock::Layout<Points>{kBatch}.field(&Points::x, {}).field(&Points::y, {});
  const penstock::Sampler training{
      {.samples = kTraining, .batch_size = kBatch, .shuffle = true, .seed = 7, .drop_last = true}};
  const penstock::Sampler validation{{.samples = kValidation, .batch_size = kBatch}};
  penstock::Prefetcher<Points> train_batches{
      layout,
      training,
      [](const penstock::Ticket& ticket, Points& batch) { fill(ticket, batch, 0); },
      {.workers = 2, .epochs = kEpochs}};
  penstock::Prefetcher<Points> validation_batches{
      layout,
      validation,
      [](const penstock::Ticket& ticket, Points& batch) { fill(ticket, batch, 0.005f); },
      {.workers = 1, .epochs = kEpochs}};

  const penstock::Stream stream;
  void* memory = nullptr;
  cudaMalloc(&memory, sizeof(Model));
  cudaMemsetAsync(memory, 0, sizeof(Model), stream.get());
  auto* const model = static_cast<Model*>(memory);

  float before = 1e9f;
  int wrong = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (std::uint64_t i = 0; i < training.batches(); ++i) {
      const auto batch = train_batches.next(stream.get());
      penstock::for_each(stream.get(), 1, Train{*batch, model});
    }
    cudaMemsetAsync(&model->squared_error, 0, sizeof(Model) - offsetof(Model, squared_error),
                    stream.get());
    for (std::uint64_t i = 0; i < validation.batches(); ++i) {
      const auto batch = validation_batches.next(stream.get());
      penstock::for_each(stream.get(), 1, Validate{*batch, model});
    }
    Model result{};
    cudaMemcpyAsync(&result, model, sizeof result, cudaMemcpyDeviceToHost, stream.get());
    stream.synchronize();
    const float error = result.squared_error / static_cast<float>(result.points);
    std::printf("epoch %d: y = %.3f x + %.3f, mean squared error %.5f over %d points\n",
                static_cast<int>(epoch), static_cast<double>(result.a),
                static_cast<double>(result.b), static_cast<double>(error),
                static_cast<int>(result.points));
    if (error >= before || result.points != kValidation) ++wrong;
    before = error;
  }
  if (train_batches.next(stream.get()) || validation_batches.next(stream.get())) ++wrong;
  cudaFree(memory);
  if (wrong > 0)
    std::fputs("train_and_validate: the line does not get better, or points are missing\n", stderr);
  return wrong == 0 ? 0 : 1;
}
