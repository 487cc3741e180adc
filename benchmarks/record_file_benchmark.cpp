// SPDX-License-Identifier: Apache-2.0

// What it costs that a lost record is an error and not a signal: copying records of 3073 bytes out
// of the page cache, in random order, by RecordFile, and by address arithmetic over one mapping.
// `ask_only` asks for the records and leaves them unread.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <penstock/detail/storage/file_reads.hpp>
#include <penstock/detail/storage/mapped_file.hpp>
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

/// The records one after the other, as they stand in a mapping, with nothing asked.
struct BareMapping {
  detail::MappedFile map{data_file()};
  std::span<const std::byte> operator[](std::uint64_t index) const {
    return map.bytes().subspan(index * kRecordBytes, kRecordBytes);
  }
};
struct Records : RecordFile {
  Records() : RecordFile({data_file()}, kRecordBytes) {}
};

/// The samples of an epoch, in the order of its batches.
std::vector<std::uint64_t> shuffled_samples() {
  const Sampler sampler{{.samples = kRecords, .batch_size = kRecords, .shuffle = true, .seed = 1}};
  std::vector<std::uint64_t> samples;
  sampler.samples(0, 0, samples);
  return samples;
}

template <class Source>
void copy_batch(benchmark::State& state) {
  const Source records;
  const std::vector<std::uint64_t> samples = shuffled_samples();
  std::vector<std::byte> batch(kBatch * kRecordBytes);
  std::size_t first = 0;
  for (auto _ : state) {
    const detail::FileReads reads;
    for (std::size_t i = 0; i < kBatch; ++i)
      std::memcpy(&batch[i * kRecordBytes], records[samples[first + i]].data(), kRecordBytes);
    reads.require_whole();
    first = first + 2 * kBatch > samples.size() ? 0 : first + kBatch;
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(kBatch) * state.iterations());
}

template <class Source>
void ask_only(benchmark::State& state) {
  const Source records;
  const detail::FileReads reads;
  std::uint64_t index = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(records[index].data());
    index = (index + 7919) % kRecords;
  }
  reads.require_whole();
}

BENCHMARK(copy_batch<BareMapping>);
BENCHMARK(copy_batch<Records>);
BENCHMARK(ask_only<BareMapping>);
BENCHMARK(ask_only<Records>);

}  // namespace

BENCHMARK_MAIN();
