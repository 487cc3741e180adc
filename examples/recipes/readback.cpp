// SPDX-License-Identifier: Apache-2.0

// docs/recipes/readback.md: a loss and the predictions of each batch come back to the host, and
// the loop never waits for them. Exit code 0: each value is right, in its order.

#include <cstdint>
#include <iostream>
#include <penstock/penstock.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Numbers {
  penstock::Tensor<float, 1> values;  // sample
};

/// Stands for a network: a prediction for each sample, and the loss of the batch.
struct Step {
  Numbers batch;
  float *loss, *predictions;

  __host__ __device__ void operator()(std::int64_t) const {
    *loss = 0;
    for (std::int64_t i = 0; i < batch.values.extent(0); ++i) {
      predictions[i] = 2 * batch.values(i);
      *loss += batch.values(i);
    }
  }
};

}  // namespace

int main() {
  constexpr std::int64_t kBatch = 64;
  constexpr std::uint64_t kSamples = 1000;  // 16 batches; the last one has 40 samples
  const penstock::Stream stream;
  penstock::DeviceArena arena{1, (1 + kBatch) * sizeof(float)};  // of the results
  const penstock::DeviceSlot slot = arena.acquire(stream.get());
  auto* const loss = reinterpret_cast<float*>(slot.data());
  auto* const predictions = loss + 1;

  penstock::Prefetcher<Numbers> prefetcher{
      penstock::Layout<Numbers>{kBatch}.field(&Numbers::values, {}),
      {.samples = kSamples, .shuffle = true},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.values(i) = static_cast<float>(ticket.samples[i]);
      },
      {.workers = 2, .epochs = 2}};

  std::vector<float> losses, predicted(kSamples);
  penstock::Readback<float> loss_line{16};
  penstock::Readback<float[]> prediction_line{4, kBatch};
  while (const auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), 1, Step{*batch, loss, predictions});
    loss_line.push(loss, stream.get(), [&](float value) { losses.push_back(value); });
    const auto& samples = batch.ticket().samples;  // of the lease: the callback gets a copy
    prediction_line.push(
        predictions, samples.size(), stream.get(),
        [&, which = std::vector(samples.begin(), samples.end())](std::span<const float> values) {
          for (std::size_t i = 0; i < values.size(); ++i) predicted[which[i]] = values[i];
        });
  }
  loss_line.drain();  // From here on this thread may read what the callbacks wrote.
  prediction_line.drain();

  float sum = 0;
  int wrong = 0;
  for (const float value : losses) sum += value;
  for (std::size_t i = 0; i < kSamples; ++i) wrong += predicted[i] != 2 * static_cast<float>(i);
  if (losses.size() != 32 || sum != 999'000 || wrong != 0) {
    std::cerr << losses.size() << " losses with sum " << sum << ", " << wrong
              << " predictions wrong\n";
    return 1;
  }

  // What a callback throws arrives at a later push, or at drain().
  loss_line.push(loss, stream.get(), [](float value) {
    throw std::runtime_error("the loss is " + std::to_string(value));
  });
  try {
    loss_line.drain();
  } catch (const std::runtime_error& error) {
    std::cout << "32 losses, 1000 predictions; then " << error.what() << '\n';
    return 0;
  }
  std::cerr << "the exception of the callback was lost\n";
  return 1;
}
