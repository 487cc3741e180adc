// SPDX-License-Identifier: Apache-2.0

// docs/recipes/from-a-bucket.md: a training loop over the objects of a bucket, with a folder for
// each class. Lists them once, fetches them ahead of the loop, and checks what the device got. The
// variable BUCKET_FOLDER names the folder, such as s3://bucket/train/; the keys come from the
// environment too.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <penstock/penstock.hpp>
#include <penstock/remote.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kBatch = 32, kPixels = 32 * 32 * 3, kEpochs = 2;

struct Pictures {
  penstock::Tensor<std::uint8_t, 2> pixels;  // sample x byte
  penstock::Tensor<std::int32_t, 1> label;   // sample
};

/// Stands for a model. In these pictures each byte is the number of the class: counts the samples
/// for which that is so.
struct Look {
  Pictures batch;
  std::uint8_t* right;

  __host__ __device__ void operator()(std::int64_t row) const {
    bool all = true;
    for (std::int64_t i = 0; i < kPixels; ++i) all &= batch.pixels(row, i) == batch.label(row);
    right[row] = all ? 1 : 0;
  }
};

int run(const std::string& folder) {
  const penstock::remote::Client client;
  if (!std::filesystem::exists("train.list")) client.save_list(folder, "train.list", {".rgb"});
  const auto photos = penstock::FileFolder::from_list(client.folder(folder), "train.list");

  const auto layout = penstock::Layout<Pictures>{kBatch}
                          .field(&Pictures::pixels, {kPixels})
                          .field(&Pictures::label, {});
  const auto read = [&photos, scratch = std::vector<std::byte>()](const penstock::Sample& sample,
                                                                  Pictures& batch) mutable {
    const std::span<const std::byte> bytes = photos.read(sample.index, scratch);
    if (bytes.size() != static_cast<std::size_t>(kPixels))
      throw std::runtime_error(photos.name(sample.index) + " has another size");
    std::memcpy(&batch.pixels(sample.row, 0), bytes.data(), bytes.size());
    batch.label(sample.row) = photos.label(sample.index);
  };
  penstock::Prefetcher<Pictures> prefetcher{layout,
                                            {.samples = photos.size(), .shuffle = true, .seed = 7},
                                            penstock::per_sample(read),
                                            {.workers = 8,
                                             .epochs = kEpochs,
                                             .on_failure = penstock::FailurePolicy::replace(10),
                                             .read_ahead = penstock::read_ahead(photos, 4)}};

  const penstock::Stream stream;
  std::vector<std::uint8_t> right(photos.size() * static_cast<std::uint64_t>(kEpochs));
  void* memory = nullptr;
  cudaMalloc(&memory, right.size());
  std::uint8_t* next = static_cast<std::uint8_t*>(memory);
  while (const auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), batch.samples(), Look{*batch, next});
    next += batch.samples();
  }
  cudaMemcpyAsync(right.data(), memory, right.size(), cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(memory);

  const auto stats = client.stats();
  std::printf(
      "%ju requests, %ju tried again, %ju late ones sent twice, half of them below %.1f ms\n",
      static_cast<std::uintmax_t>(stats.requests), static_cast<std::uintmax_t>(stats.retries),
      static_cast<std::uintmax_t>(stats.hedges),
      1e-6 * static_cast<double>(stats.latency_p50.count()));
  const auto count = std::count(right.begin(), right.end(), 1);
  std::printf("from_a_bucket: %td of %zu samples are right\n", count, right.size());
  return static_cast<std::size_t>(count) == right.size() ? 0 : 1;
}

}  // namespace

int main() {
  const char* const folder = std::getenv("BUCKET_FOLDER");  // NOLINT(concurrency-mt-unsafe)
  if (folder == nullptr) {
    std::fputs("from_a_bucket: set BUCKET_FOLDER, such as s3://bucket/train/\n", stderr);
    return 2;
  }
  try {
    return run(folder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "from_a_bucket: %s\n", error.what());
    return 1;
  }
}
