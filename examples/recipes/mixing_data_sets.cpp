// SPDX-License-Identifier: Apache-2.0

// docs/recipes/mixing-data-sets.md: one pipeline over two data sets of different kinds, three
// quarters of whose samples are of the first, and of the second those that a filter keeps. Writes
// both to the working directory, and checks what the device got.

#include <cuda_runtime_api.h>

#include <algorithm>
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

namespace {

constexpr std::uint64_t kPoems = 300, kReports = 5'000;
constexpr std::int64_t kBatch = 32, kBytes = 64;

struct Texts {
  penstock::Tensor<std::uint8_t, 2> text;  // sample x byte
  penstock::Tensor<std::int32_t, 1> set;   // sample
};

/// A packed file of poems, and reports of one size in a file of records.
void write_data() {
  std::filesystem::remove("poems.pack");
  penstock::PackedFileWriter pack("poems.pack");
  for (std::uint64_t i = 0; i < kPoems; ++i) {
    const std::string poem(kBytes, static_cast<char>('a' + i % 13));
    pack.append(std::as_bytes(std::span(poem)));
  }
  pack.finish();
  std::ofstream reports("reports.bin", std::ios::binary);
  for (std::uint64_t i = 0; i < kReports; ++i)
    reports << std::string(kBytes, static_cast<char>('n' + i % 13));
}

/// Of each sample: 0 for a poem, 1 for a report, 2 where the text is not of its data set, or not of
/// the subset.
struct Look {
  Texts batch;
  std::uint8_t* kinds;

  __host__ __device__ void operator()(std::int64_t row) const {
    const std::uint8_t letter = batch.text(row, kBytes - 1);
    const std::int32_t of_text = letter < 'n' ? 0 : letter < 't' ? 1 : 2;
    kinds[row] = static_cast<std::uint8_t>(of_text == batch.set(row) ? of_text : 2);
  }
};

}  // namespace

int main() {
  write_data();
  const penstock::PackedFile poems("poems.pack");
  const penstock::RecordFile reports({"reports.bin"}, kBytes);

  const auto is_early = [&](std::uint64_t i) { return reports[i][0] < std::byte{'t'}; };
  penstock::Subset::where(reports.size(), is_early, 2).save("early.subset");
  const auto early = penstock::Subset::load("early.subset", reports.size());

  const penstock::Mixture mixture{
      {{.data = {.samples = poems.size(), .shuffle = true}, .weight = 3},
       {.data = {.samples = early.size(), .shuffle = true}, .weight = 1}},
      {.samples = 2'000, .batch_size = kBatch, .seed = 7, .drop_last = true}};
  std::printf("an epoch reads each poem %.1f times, and %.0f %% of the early reports\n",
              mixture.passes(0), 100 * mixture.passes(1));

  const auto layout =
      penstock::Layout<Texts>{kBatch}.field(&Texts::text, {kBytes}).field(&Texts::set, {});
  const auto source = [&, scratch = std::vector<std::byte>()](const penstock::Ticket& ticket,
                                                              Texts& batch) mutable {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const auto [set, index] = mixture.place(ticket.samples[i]);
      const auto text = set == 0 ? poems.read(index, scratch) : reports.read(early[index], scratch);
      std::memcpy(&batch.text(row, 0), text.data(), kBytes);
      batch.set(row) = static_cast<std::int32_t>(set);
    }
  };
  penstock::Prefetcher<Texts> prefetcher{layout, mixture, source, {.workers = 2, .epochs = 3}};

  const penstock::Stream stream;
  std::vector<std::uint8_t> kinds(static_cast<std::size_t>(3 * mixture.batches()) * kBatch);
  void* memory = nullptr;
  cudaMalloc(&memory, kinds.size());
  std::uint8_t* next = static_cast<std::uint8_t*>(memory);
  while (const auto batch = prefetcher.next(stream.get())) {
    penstock::for_each(stream.get(), batch.samples(), Look{*batch, next});
    next += batch.samples();
  }
  cudaMemcpyAsync(kinds.data(), memory, kinds.size(), cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  cudaFree(memory);

  const auto count = [&](int kind) { return std::count(kinds.begin(), kinds.end(), kind); };
  std::printf("mixing_data_sets: %td poems and %td reports, %td wrong\n", count(0), count(1),
              count(2));
  return count(0) == 3 * count(1) && count(2) == 0 ? 0 : 1;
}
