// SPDX-License-Identifier: Apache-2.0

// docs/recipes/many-files-and-shards.md: the same samples as files in folders, as tar shards and as
// a packed file, read by the same source, in runs of neighbours. Writes them to the working
// directory, and compares sums that the device computed.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <penstock/penstock.hpp>
#include <span>
#include <string>
#include <vector>

#include "tar_writer.hpp"

namespace {

constexpr std::uint64_t kSamples = 512, kClasses = 4, kShards = 4;
constexpr std::int64_t kBatch = 32, kBytes = 100;

struct Texts {
  penstock::Tensor<std::uint8_t, 2> text;     // sample x byte
  penstock::Tensor<std::int32_t, 1> label;    // sample
  penstock::Tensor<std::uint64_t, 1> number;  // sample
};

/// texts/class_0/0000.txt and so on.
void write_folder() {
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::string number = std::to_string(10'000 + i);
    const std::filesystem::path folder = "texts/class_" + std::to_string(i / (kSamples / kClasses));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / (number + ".txt"))
        << std::string(kBytes, static_cast<char>('a' + i % 26));
  }
}

/// shard-0.tar and so on: members 17.txt, the text, and 17.cls, the label.
std::vector<std::filesystem::path> write_shards(const penstock::FileFolder& files) {
  std::vector<std::filesystem::path> shards;
  std::vector<std::byte> scratch;
  for (std::uint64_t shard = 0; shard < kShards; ++shard) {
    example_data::TarWriter tar;
    for (std::uint64_t i = shard * (kSamples / kShards); i < (shard + 1) * (kSamples / kShards);
         ++i) {
      const std::string label = std::to_string(files.label(i));
      tar.add(std::to_string(i) + ".txt", files.read(i, scratch));
      tar.add(std::to_string(i) + ".cls", std::as_bytes(std::span(label)));
    }
    shards.emplace_back("shard-" + std::to_string(shard) + ".tar");
    std::ofstream(shards.back(), std::ios::binary) << tar.finished();
  }
  return shards;
}

void write_pack(const penstock::FileFolder& files, const std::filesystem::path& file) {
  penstock::PackedFileWriter pack(file);
  std::vector<std::byte> scratch;
  for (std::uint64_t i = pack.size(); i < files.size(); ++i)
    pack.append(files.read(i, scratch), files.label(i), files.name(i));
  pack.finish();
}

/// Of each sample: 1000 times its label, and the sum of its bytes.
struct Sum {
  Texts batch;
  std::uint64_t* sums;

  __host__ __device__ void operator()(std::int64_t row) const {
    std::uint64_t sum = 1000 * static_cast<std::uint64_t>(batch.label(row));
    for (std::int64_t i = 0; i < kBytes; ++i) sum += batch.text(row, i);
    sums[batch.number(row)] = sum;
  }
};

template <penstock::Store AnyStore>
std::vector<std::uint64_t> load(const AnyStore& store) {
  const auto layout = penstock::Layout<Texts>{kBatch}
                          .field(&Texts::text, {kBytes})
                          .field(&Texts::label, {})
                          .field(&Texts::number, {});
  const penstock::SamplerOptions sampler{.samples = store.size(),
                                         .shuffle = true,
                                         .seed = 7,
                                         .block = 16,   // samples that lie together
                                         .window = 8};  // blocks that are shuffled together
  const auto source = [&store, scratch = std::vector<std::byte>()](const penstock::Ticket& ticket,
                                                                   Texts& batch) mutable {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const std::span<const std::byte> text = store.read(ticket.samples[i], scratch);
      std::memcpy(&batch.text(row, 0), text.data(), kBytes);
      batch.label(row) = store.label(ticket.samples[i]);
      batch.number(row) = ticket.samples[i];
    }
  };
  penstock::Prefetcher<Texts> prefetcher{
      layout, sampler, source, {.workers = 2, .read_ahead = penstock::read_ahead(store, 4)}};

  const penstock::Stream stream;
  std::vector<std::uint64_t> sums(store.size());
  const std::size_t bytes = sums.size() * sizeof(std::uint64_t);
  void* memory = nullptr;
  cudaMalloc(&memory, bytes);
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), batch.samples(),
                       Sum{*batch, static_cast<std::uint64_t*>(memory)});
  cudaMemcpyAsync(sums.data(), memory, bytes, cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(memory);
  return sums;
}

}  // namespace

int main() {
  write_folder();
  const penstock::FileFolder files("texts", {".txt"});
  const penstock::TarShards shards(write_shards(files));
  write_pack(files, "texts.pack");
  const penstock::PackedFile pack("texts.pack");

  std::vector<std::uint64_t> expected(kSamples);
  for (std::uint64_t i = 0; i < kSamples; ++i)
    expected[i] = 1000 * (i / (kSamples / kClasses)) + kBytes * ('a' + i % 26);
  if (load(files) != expected || load(shards) != expected || load(pack) != expected) {
    std::fputs("many_files_and_shards: a store has other samples than the others\n", stderr);
    return 1;
  }
  std::puts("many_files_and_shards: three stores, the same samples");
  return 0;
}
