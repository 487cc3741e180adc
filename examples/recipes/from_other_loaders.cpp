// SPDX-License-Identifier: Apache-2.0

// docs/recipes/from-other-loaders.md: a loop as PyTorch's DataLoader has it, with the same options:
// texts of different lengths, shuffled, two epochs, four workers. Exit code 0: each epoch has each
// text once, the orders of the epochs differ, and one worker gives the same batches as four.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <penstock/penstock.hpp>
#include <set>
#include <vector>

namespace {

using namespace std::chrono_literals;

/// The data set: text i has i % 7 + 1 tokens, each of them i.
struct Texts {
  std::uint64_t size() const { return 1'000; }
  std::vector<std::int64_t> operator[](std::uint64_t i) const {
    return std::vector<std::int64_t>(i % 7 + 1, static_cast<std::int64_t>(i));
  }
};

struct Batch {
  penstock::Ragged<std::int64_t> tokens;
  penstock::Tensor<std::int64_t, 1> labels;
};

/// Stands for a step: adds all tokens of a batch to *sum.
struct Step {
  Batch batch;
  std::int64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t row = 0; row < batch.tokens.size(); ++row)
      for (std::int64_t i = 0; i < batch.tokens.length(row); ++i)
        *sum += batch.tokens.begin(row)[i];
  }
};

struct Run {
  std::vector<std::vector<std::uint64_t>> epochs{2};  // the samples in their order
  std::int64_t sum = 0;
  bool operator==(const Run&) const = default;
};

Run run(int workers) {
  const Texts texts;
  const penstock::Stream stream;
  penstock::DeviceArena arena{1, sizeof(std::int64_t)};
  const penstock::DeviceSlot slot = arena.acquire(stream.get());
  auto* const sum = reinterpret_cast<std::int64_t*>(slot.data());
  cudaMemsetAsync(sum, 0, sizeof *sum, stream.get());

  const auto layout = penstock::Layout<Batch>{32}  // batch_size=32
                          .field(&Batch::tokens, penstock::Capacity{32 * 7})
                          .field(&Batch::labels, {});
  const penstock::SamplerOptions sampler{.samples = texts.size(),
                                         .shuffle = true,      // shuffle=True
                                         .seed = 7,            // generator=
                                         .drop_last = false};  // drop_last=False
  const auto source = penstock::per_sample([&texts](const penstock::Sample& sample, Batch& batch) {
    batch.tokens.assign(sample.row, texts[sample.index]);  // collate_fn=
    batch.labels(sample.row) = static_cast<std::int64_t>(sample.index % 2);
  });
  const penstock::PrefetcherOptions options{.workers = workers,  // num_workers=4
                                            .host_depth = 8,     // prefetch_factor=2
                                            .epochs = 2,
                                            .ordered = true,        // in_order=True
                                            .stall_timeout = 60s};  // timeout=60
  penstock::Prefetcher<Batch> loader{layout, sampler, source, options};

  Run result;
  while (const auto batch = loader.next(stream.get())) {  // of both epochs
    penstock::for_each(stream.get(), 1, Step{*batch, sum});
    auto& samples = result.epochs[batch.ticket().epoch];
    samples.insert(samples.end(), batch.ticket().samples.begin(), batch.ticket().samples.end());
  }
  penstock::Readback<std::int64_t> line{1};
  line.push(sum, stream.get(), [&](std::int64_t value) { result.sum = value; });
  line.drain();
  return result;
}

}  // namespace

int main() {
  const Run four = run(4);
  const auto each_once = [](const std::vector<std::uint64_t>& samples) {
    return samples.size() == 1'000 && std::set(samples.begin(), samples.end()).size() == 1'000;
  };
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < 1'000; ++i) sum += 2 * i * (i % 7 + 1);
  if (!each_once(four.epochs[0]) || !each_once(four.epochs[1]) ||
      four.epochs[0] == four.epochs[1] || four.sum != sum || run(1) != four) {
    std::cerr << "the epochs are not what they have to be; the sum is " << four.sum << '\n';
    return 1;
  }
  std::cout << "two epochs of 1000 texts, the same with one worker and four\n";
  return 0;
}
