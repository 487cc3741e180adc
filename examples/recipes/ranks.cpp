// SPDX-License-Identifier: Apache-2.0

// docs/recipes/ranks.md: each rank of a job takes a part of every epoch. Under a launcher this is
// one rank, and says which samples it had; without one it plays three ranks, one after the other,
// and checks that together they had each sample.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <penstock/penstock.hpp>
#include <span>
#include <vector>

namespace {

constexpr std::uint64_t kSamples = 1000;
constexpr std::int64_t kBatch = 64;  // of one rank

struct Numbers {
  penstock::Tensor<std::uint64_t, 1> number;
};

/// How often this rank has had each sample in one epoch.
std::vector<int> run(const penstock::Ranks& ranks) {
  const penstock::Sampler sampler{
      {.samples = kSamples, .batch_size = kBatch, .shuffle = true, .seed = 7}, ranks};
  const auto source = [](const penstock::Ticket& ticket, Numbers& batch) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      batch.number(static_cast<std::int64_t>(i)) = ticket.samples[i];
  };
  penstock::Prefetcher<Numbers> prefetcher{
      penstock::Layout<Numbers>{kBatch}.field(&Numbers::number, {}),
      sampler,
      source,
      {.workers = 2}};

  const penstock::Stream stream;
  std::vector<int> had(kSamples);
  while (const auto batch =
             prefetcher.next(stream.get()))  // your step, then the sum over the ranks
    for (const std::uint64_t sample : batch.ticket().samples) ++had[sample];
  std::printf("rank %d of %d: %d batches, %d samples\n", ranks.rank, ranks.world_size,
              static_cast<int>(sampler.batches()), static_cast<int>(sampler.samples_per_epoch()));
  return had;
}

}  // namespace

int main() {
  const auto ranks = penstock::Ranks::from_environment();  // one rank where there is no launcher
  int devices = 0;
  cudaGetDeviceCount(&devices);
  cudaSetDevice(ranks.local_rank % devices);
  if (ranks.world_size > 1) {
    run(ranks);
    return 0;
  }

  std::vector<int> had(kSamples);
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<int> part = run({.rank = rank, .world_size = 3});
    for (std::uint64_t i = 0; i < kSamples; ++i) had[i] += part[i];
  }
  std::uint64_t once = 0, twice = 0;
  for (const int times : had) {
    if (times == 1) ++once;
    if (times == 2) ++twice;
  }
  std::printf("ranks: %d samples once, %d twice\n", static_cast<int>(once),
              static_cast<int>(twice));
  return once == kSamples - 2 && twice == 2 ? 0 : 1;  // 1000 is not a multiple of 3; 1002 is.
}
