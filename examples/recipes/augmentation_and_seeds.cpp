// SPDX-License-Identifier: Apache-2.0

// docs/recipes/augmentation-and-seeds.md: pictures are cut at a random place and mirrored at
// random. Each sample gets the same in any batch, with any number of workers and on any rank, and
// something else in the next epoch.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <penstock/penstock.hpp>
#include <utility>
#include <vector>

namespace {

constexpr std::uint64_t kPictures = 200;
constexpr std::int64_t kSide = 16, kCrop = 12;  // pixels

struct Crops {
  penstock::Tensor<std::uint8_t, 3> pixels;  // picture x row x column
};

/// Numbers from a seed: SplitMix64, which needs no set-up, unlike std::mt19937_64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  /// 0 to bound - 1.
  std::int64_t below(std::int64_t bound) {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = (state_ ^ (state_ >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<std::int64_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(bound));
  }

 private:
  std::uint64_t state_;
};

/// Stands for the decoder.
std::uint8_t pixel(std::uint64_t picture, std::int64_t y, std::int64_t x) {
  return static_cast<std::uint8_t>(picture * 31 + static_cast<std::uint64_t>(y * kSide + x));
}

void crop(const penstock::Sample& sample, Crops& batch) {
  Random random(sample.seed);
  const std::int64_t top = random.below(kSide - kCrop + 1), left = random.below(kSide - kCrop + 1);
  const bool mirrored = random.below(2) == 1;
  for (std::int64_t y = 0; y < kCrop; ++y)
    for (std::int64_t x = 0; x < kCrop; ++x)
      batch.pixels(sample.row, y, x) =
          pixel(sample.index, top + y, left + (mirrored ? kCrop - 1 - x : x));
}

/// By (epoch, sample): the pixels that the device gets.
using Pictures = std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::uint8_t>>;

/// Two epochs of this rank, with one seed for the run.
void run(penstock::SamplerOptions options, int workers, Pictures& pictures) {
  options.samples = kPictures;
  options.shuffle = true;
  options.seed = 7;
  penstock::Prefetcher<Crops> prefetcher{
      penstock::Layout<Crops>{options.batch_size}.field(&Crops::pixels, {kCrop, kCrop}),
      penstock::Sampler(options),
      penstock::per_sample(crop),
      {.workers = workers, .epochs = 2}};
  const penstock::Stream stream;
  while (const auto batch = prefetcher.next(stream.get()))
    for (std::int64_t row = 0; row < batch.samples(); ++row) {
      std::vector<std::uint8_t> pixels(kCrop * kCrop);
      cudaMemcpyAsync(pixels.data(), batch->pixels.data_handle() + row * kCrop * kCrop,
                      pixels.size(), cudaMemcpyDeviceToHost, stream.get());
      stream.synchronize();
      pictures[{batch.ticket().epoch, batch.ticket().samples[static_cast<std::size_t>(row)]}] =
          pixels;
    }
}

}  // namespace

int main() {
  Pictures expected, other_batches, two_ranks;
  run({.batch_size = 32}, 1, expected);
  run({.batch_size = 7}, 4, other_batches);
  run({.batch_size = 16, .rank = 0, .world_size = 2}, 2, two_ranks);
  run({.batch_size = 16, .rank = 1, .world_size = 2}, 2, two_ranks);
  std::uint64_t changed = 0;
  for (std::uint64_t i = 0; i < kPictures; ++i)
    if (expected[{0, i}] != expected[{1, i}]) ++changed;

  const bool same = expected == other_batches && expected == two_ranks;
  std::printf(
      "augmentation_and_seeds: %s for other batches, workers and ranks; %d of %d pictures differ "
      "in epoch 1\n",
      same ? "the same" : "DIFFERENT", static_cast<int>(changed), static_cast<int>(kPictures));
  return same && expected.size() == 2 * kPictures && changed > kPictures * 9 / 10 ? 0 : 1;
}
