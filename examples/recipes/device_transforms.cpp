// SPDX-License-Identifier: Apache-2.0

// docs/recipes/device-transforms.md: bytes are copied, and become mirrored, normalised floats on
// the device before the loop gets them.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <penstock/penstock.hpp>
#include <vector>

namespace {

constexpr std::uint64_t kPictures = 300;
constexpr std::int64_t kBatch = 32, kWidth = 64;
constexpr float kMean = 127.5f, kDeviation = 60.0f;

/// What the workers write, and what is copied.
struct Bytes {
  penstock::Tensor<std::uint8_t, 2> pixels;   // picture x column
  penstock::Tensor<std::uint64_t, 1> number;  // picture
  penstock::Tensor<std::uint64_t, 1> seed;    // picture
};

/// What the loop gets.
struct Pictures {
  penstock::Tensor<float, 2> pixels;          // picture x column
  penstock::Tensor<std::uint64_t, 1> number;  // picture
};

/// Index: a pixel of the batch.
struct Prepare {
  Bytes bytes;
  Pictures pictures;

  __host__ __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / kWidth, x = index % kWidth;
    const bool mirrored = bytes.seed(row) % 2 == 1;
    const std::uint8_t value = bytes.pixels(row, mirrored ? kWidth - 1 - x : x);
    pictures.pixels(row, x) = (static_cast<float>(value) - kMean) / kDeviation;
    if (x == 0) pictures.number(row) = bytes.number(row);
  }
};

/// Stands for a model: keeps what it is given, by picture.
struct Keep {
  Pictures batch;
  float* kept;

  __host__ __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / kWidth, x = index % kWidth;
    kept[static_cast<std::int64_t>(batch.number(row)) * kWidth + x] = batch.pixels(row, x);
  }
};

std::uint8_t pixel(std::uint64_t picture, std::int64_t x) {
  return static_cast<std::uint8_t>(picture * 7 + static_cast<std::uint64_t>(x));
}

}  // namespace

int main() {
  const auto copied = penstock::Layout<Bytes>{kBatch}
                          .field(&Bytes::pixels, {kWidth})
                          .field(&Bytes::number, {})
                          .field(&Bytes::seed, {});
  const auto delivered = penstock::Layout<Pictures>()  // with the batch size of `copied`
                             .field(&Pictures::pixels, {kWidth})
                             .field(&Pictures::number, {});
  const auto read = penstock::per_sample([](const penstock::Sample& sample, Bytes& batch) {
    for (std::int64_t x = 0; x < kWidth; ++x) batch.pixels(sample.row, x) = pixel(sample.index, x);
    batch.number(sample.row) = sample.index;
    batch.seed(sample.row) = sample.seed;
  });
  const penstock::DeviceTransform<Bytes, Pictures> prepare{
      delivered,
      [](const penstock::Ticket&, const Bytes& bytes, Pictures& pictures, cudaStream_t stream) {
        penstock::for_each(stream, bytes.pixels.extent(0) * kWidth, Prepare{bytes, pictures});
      }};
  penstock::Prefetcher<Pictures, Bytes> prefetcher{
      copied, {.samples = kPictures, .shuffle = true, .seed = 7}, read, prepare, {.workers = 2}};

  const penstock::Stream stream;
  std::vector<float> found(kPictures * kWidth);
  void* kept = nullptr;
  cudaMalloc(&kept, found.size() * sizeof(float));
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), batch.samples() * kWidth,
                       Keep{*batch, static_cast<float*>(kept)});
  cudaMemcpyAsync(found.data(), kept, found.size() * sizeof(float), cudaMemcpyDeviceToHost,
                  stream.get());
  stream.synchronize();
  cudaFree(kept);

  int wrong = 0;
  for (std::uint64_t picture = 0; picture < kPictures; ++picture) {
    const bool mirrored = penstock::sample_seed(7, 0, picture) % 2 == 1;  // run seed, epoch, sample
    for (std::int64_t x = 0; x < kWidth; ++x) {
      const auto value = static_cast<float>(pixel(picture, mirrored ? kWidth - 1 - x : x));
      if (found[picture * kWidth + static_cast<std::uint64_t>(x)] != (value - kMean) / kDeviation)
        ++wrong;
    }
  }
  const penstock::Stats stats = prefetcher.stats();
  std::printf(
      "device_transforms: %d pixels are wrong; %d bytes copied, of floats it would have been %d\n",
      wrong, static_cast<int>(stats.copy.bytes), static_cast<int>(found.size() * sizeof(float)));
  return wrong == 0 ? 0 : 1;
}
