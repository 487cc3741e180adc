// SPDX-License-Identifier: Apache-2.0

// docs/recipes/own-files.md: files in a format of one's own, a sample each. Writes some to the
// working directory, loads them in a random order, and compares sums that the device computed.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <penstock/penstock.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kFiles = 200, kValues = 64;

struct Readings {
  penstock::Tensor<float, 2> values;          // sample x value
  penstock::Tensor<std::int32_t, 1> station;  // sample
};

/// One file: the number of the station, and what was read there.
struct Record {
  std::int32_t station;
  float values[kValues];
};

std::vector<std::filesystem::path> write_files() {
  std::vector<std::filesystem::path> files;
  for (std::int32_t station = 0; station < kFiles; ++station) {
    Record record{station, {}};
    for (std::int64_t i = 0; i < kValues; ++i) record.values[i] = static_cast<float>(station + i);
    files.emplace_back("station-" + std::to_string(station) + ".bin");
    std::ofstream(files.back(), std::ios::binary)
        .write(reinterpret_cast<const char*>(&record), sizeof record);
  }
  return files;
}

void parse(std::span<const std::byte> bytes, Readings& batch, std::int64_t row) {
  std::memcpy(&batch.station(row), bytes.data(), sizeof(Record::station));
  std::memcpy(&batch.values(row, 0), bytes.data() + offsetof(Record, values),
              sizeof(Record::values));
}

/// Stands for a model: the sum of the values of each station.
struct Sum {
  Readings batch;
  float* sums;

  __host__ __device__ void operator()(std::int64_t row) const {
    float sum = 0;
    for (std::int64_t i = 0; i < kValues; ++i) sum += batch.values(row, i);
    sums[batch.station(row)] = sum;
  }
};

}  // namespace

int main() {
  const auto files = penstock::FileFolder::from_files(write_files());
  const auto layout = penstock::Layout<Readings>{32}  // samples in a batch
                          .field(&Readings::values, {kValues})
                          .field(&Readings::station, {});
  const auto source = [&files, scratch = std::vector<std::byte>()](const penstock::Ticket& ticket,
                                                                   Readings& batch) mutable {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const std::uint64_t sample = ticket.samples[i];
      const std::span<const std::byte> bytes = files.read(sample, scratch);
      if (bytes.size() != sizeof(Record))
        throw std::runtime_error(files.name(sample) + " has " + std::to_string(bytes.size()) +
                                 " bytes, not " + std::to_string(sizeof(Record)));
      parse(bytes, batch, static_cast<std::int64_t>(i));
    }
  };
  penstock::Prefetcher<Readings> prefetcher{
      layout, {.samples = files.size(), .shuffle = true, .seed = 7}, source, {.workers = 2}};

  const penstock::Stream stream;
  float* sums = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&sums), kFiles * sizeof(float));
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), batch.samples(), Sum{*batch, sums});

  std::vector<float> found(kFiles);
  cudaMemcpyAsync(found.data(), sums, kFiles * sizeof(float), cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(sums);
  for (std::int64_t station = 0; station < kFiles; ++station) {
    const std::int64_t expected = kValues * station + kValues * (kValues - 1) / 2;
    if (found[static_cast<std::size_t>(station)] == static_cast<float>(expected)) continue;
    std::fprintf(stderr, "own_files: the sum of station %lld is wrong\n",
                 static_cast<long long>(station));
    return 1;
  }
  std::puts("own_files: all sums are right");
  return 0;
}
