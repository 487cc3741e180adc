// SPDX-License-Identifier: Apache-2.0

// A batch of records of 3073 bytes out of the page cache, in random order: by RecordFile, and by
// nothing but pread.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <penstock/record_file.hpp>
#include <penstock/sampler.hpp>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace penstock;

constexpr std::size_t kRecordBytes = 3073;
constexpr std::uint64_t kRecords = 50'000;  // 154 MB, as CIFAR-10
constexpr std::size_t kBatch = 256;

/// A file of its own, removed at exit.
struct DataFile {
  DataFile() : path(std::filesystem::temp_directory_path() / "penstock_record_file_benchmark.bin") {
    std::ofstream file(path, std::ios::binary);
    for (std::uint64_t i = 0; i < kRecords; ++i)
      file << std::string(kRecordBytes, static_cast<char>(i & 0x7f));
  }
  ~DataFile() { std::filesystem::remove(path); }
  const std::filesystem::path path;
};
const std::filesystem::path& data_file() {
  static const DataFile file;
  return file.path;
}

struct BarePread {
  ~BarePread() { ::close(file); }
  void operator()(std::uint64_t index, std::span<std::byte> target) const {
    benchmark::DoNotOptimize(
        ::pread(file, target.data(), kRecordBytes, static_cast<off_t>(index * kRecordBytes)));
  }
  const int file = ::open(data_file().c_str(), O_RDONLY | O_CLOEXEC);
};
struct ReadInto {
  void operator()(std::uint64_t index, std::span<std::byte> target) const {
    records.read_into(index, target);
  }
  const RecordFile records{{data_file()}, kRecordBytes};
};
/// By way of scratch memory, as a decoder reads.
struct Read {
  void operator()(std::uint64_t index, std::span<std::byte> target) {
    std::ranges::copy(records.read(index, scratch), target.begin());
  }
  const RecordFile records{{data_file()}, kRecordBytes};
  std::vector<std::byte> scratch;
};
struct Subscript {
  void operator()(std::uint64_t index, std::span<std::byte> target) const {
    std::ranges::copy(records[index], target.begin());
  }
  const RecordFile records{{data_file()}, kRecordBytes};
};

/// The samples of an epoch, in the order of its batches.
std::vector<std::uint64_t> shuffled_samples() {
  const Sampler sampler{{.samples = kRecords, .batch_size = kRecords, .shuffle = true, .seed = 1}};
  std::vector<std::uint64_t> samples;
  sampler.samples(0, 0, samples);
  return samples;
}

template <class Reader>
void read_batch(benchmark::State& state) {
  Reader read;
  const std::vector<std::uint64_t> samples = shuffled_samples();
  std::vector<std::byte> batch(kBatch * kRecordBytes);
  std::size_t first = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < kBatch; ++i)
      read(samples[first + i], std::span(batch).subspan(i * kRecordBytes, kRecordBytes));
    first = first + 2 * kBatch > samples.size() ? 0 : first + kBatch;
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(kBatch) * state.iterations());
}

BENCHMARK(read_batch<BarePread>);
BENCHMARK(read_batch<ReadInto>);
BENCHMARK(read_batch<Read>);
BENCHMARK(read_batch<Subscript>);

}  // namespace

BENCHMARK_MAIN();
