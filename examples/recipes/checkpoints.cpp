// SPDX-License-Identifier: Apache-2.0

// docs/recipes/checkpoints.md: a run is stopped in the middle of an epoch and resumed: exactly,
// with other workers; and on two ranks, with the samples of the epoch that are left.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <penstock/penstock.hpp>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::uint64_t kSamples = 1000, kEpochs = 3, kStop = 25;  // batches: an epoch has 16
constexpr std::int64_t kBatch = 64;

struct Numbers {
  penstock::Tensor<std::uint64_t, 1> number;
};

penstock::SamplerOptions options(std::int64_t batch_size, std::uint64_t seed = 7) {
  return {.samples = kSamples, .batch_size = batch_size, .shuffle = true, .seed = seed};
}

/// A pipeline over the sampler: its workers number the samples.
struct Pipeline {
  explicit Pipeline(const penstock::Sampler& sampler, int workers = 2,
                    std::uint64_t epochs = kEpochs)
      : prefetcher(penstock::Layout<Numbers>{sampler.batch_size()}.field(&Numbers::number, {}),
                   sampler,
                   [](const penstock::Ticket& ticket, Numbers& batch) {
                     for (std::size_t i = 0; i < ticket.samples.size(); ++i)
                       batch.number(static_cast<std::int64_t>(i)) = ticket.samples[i];
                   },
                   {.workers = workers, .epochs = epochs}) {}

  /// The samples of at most `batches` batches, in order.
  std::vector<std::uint64_t> take(std::uint64_t batches) {
    std::vector<std::uint64_t> samples;
    for (std::uint64_t i = 0; i < batches; ++i) {
      const auto batch = prefetcher.next(stream.get());
      if (!batch) break;
      samples.insert(samples.end(), batch.ticket().samples.begin(), batch.ticket().samples.end());
    }
    return samples;
  }

  penstock::Stream stream;
  penstock::Prefetcher<Numbers> prefetcher;
};

}  // namespace

int main() {
  const std::vector<std::uint64_t> all =
      Pipeline(penstock::Sampler(options(kBatch))).take(UINT64_MAX);
  std::vector<std::uint64_t> found;
  {
    Pipeline first{penstock::Sampler(options(kBatch))};
    found = first.take(kStop);
    first.prefetcher.state().save("state.txt");  // with the model's weights of the same step
  }

  // Exactly: other workers and depths, the same batches.
  const penstock::State saved = penstock::State::load("state.txt");
  std::printf("%s\n", to_string(saved).c_str());
  Pipeline second(penstock::Sampler(options(kBatch)), 4);
  second.prefetcher.restore(saved);
  for (const std::uint64_t sample : second.take(UINT64_MAX)) found.push_back(sample);
  const bool exact = found == all;

  // On two ranks with batches of 32: the rest of epoch 1, each sample once.
  std::vector<int> had(kSamples);
  for (std::uint64_t i = kSamples; i < kSamples + (kStop - 16) * kBatch; ++i) ++had[all[i]];
  for (int rank = 0; rank < 2; ++rank) {
    const penstock::Sampler rest(options(32), penstock::Ranks{.rank = rank, .world_size = 2},
                                 saved);
    Pipeline pipeline(rest);
    for (const std::uint64_t sample : pipeline.take(rest.batches() - rest.start().batch))
      ++had[sample];
  }
  const bool each_once = had == std::vector<int>(kSamples, 1);

  // A state of another run is refused, and one that is behind the end of the run.
  const auto is_refused = [&](std::uint64_t seed, std::uint64_t epochs) {
    try {
      Pipeline other(penstock::Sampler(options(kBatch, seed)), 2, epochs);
      other.prefetcher.restore(saved);
      return false;
    } catch (const std::invalid_argument& error) {
      std::printf("%s\n", error.what());
      return true;
    }
  };
  const bool refused = is_refused(8, kEpochs) && is_refused(7, 1);
  std::printf("checkpoints: %s, %s, %s\n", exact ? "exact" : "NOT exact",
              each_once ? "each sample once" : "NOT each sample once",
              refused ? "refused" : "NOT refused");
  return exact && each_once && refused ? 0 : 1;
}
