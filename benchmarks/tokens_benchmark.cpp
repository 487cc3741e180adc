// SPDX-License-Identifier: Apache-2.0

// What it costs to make batches of tokens: Packing, on one thread, out of the page cache, from
// documents of lognormal lengths. Beside it a loop as llm.c's loader has it, which reads a batch of
// tokens by one fread and copies them into inputs and targets. It knows no documents and no order
// but that of the file, so it is compared with sequences in that order, and with shuffled ones.
// And what it costs to open a file, and to pack its documents.

#include <penstock/packing.hpp>
#include <penstock/sampler.hpp>
#include <penstock/token_file.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "side_by_side.hpp"

namespace {

using penstock::Packing;
using penstock::PackingMethod;
using penstock::TokenFile;
using penstock::TokenType;

constexpr std::uint16_t kEnd = 50256;
constexpr std::size_t kTokens = std::size_t{1} << 25;
constexpr std::int64_t kBatch = 16, kLength = 2048;
constexpr std::size_t kBatchTokens = kBatch * kLength;

/// As web texts have them: 820 tokens on average.
class Lengths {
 public:
  std::int32_t next() { return 1 + static_cast<std::int32_t>(lengths_(random_)); }
  std::uint16_t token() { return static_cast<std::uint16_t>(random_() % kEnd); }

 private:
  std::mt19937 random_{7};
  std::lognormal_distribution<double> lengths_{std::log(450), 1.1};
};

/// A file of nanoGPT's kind, in a directory of its own.
class TokensOnDisk {
 public:
  TokensOnDisk() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock_tokens_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    directory_ = name;
    std::vector<std::uint16_t> tokens;
    Lengths lengths;
    while (tokens.size() < kTokens) {
      for (std::int32_t left = lengths.next(); left > 1; --left) tokens.push_back(lengths.token());
      tokens.push_back(kEnd);
    }
    tokens.resize(kTokens);
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size() * sizeof(tokens[0])));
  }
  ~TokensOnDisk() { std::filesystem::remove_all(directory_); }
  TokensOnDisk(const TokensOnDisk&) = delete;
  TokensOnDisk& operator=(const TokensOnDisk&) = delete;

  std::filesystem::path path() const { return directory_ / "tokens.bin"; }

 private:
  std::filesystem::path directory_;
};

const TokensOnDisk& on_disk() {
  static const TokensOnDisk tokens;
  return tokens;
}

TokenFile open_tokens(bool mapped) {
  return TokenFile::raw({on_disk().path()}, TokenType::uint16,
                        {.end_of_document = kEnd, .mapped = mapped});
}

void report_tokens(benchmark::State& state, std::uint64_t tokens) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tokens));
}

enum class Fields { inputs_and_targets, boundaries, all };

/// One epoch, batch by batch.
void fill(benchmark::State& state, PackingMethod method, Fields wanted, bool mapped, bool shuffle) {
  const Packing packing(open_tokens(mapped), {.length = kLength, .method = method});
  const penstock::Sampler sampler({.samples = packing.size(),
                                   .batch_size = kBatch,
                                   .shuffle = shuffle,
                                   .seed = 7,
                                   .drop_last = true});
  std::vector<std::int32_t> tokens(kBatchTokens), targets(kBatchTokens), positions(kBatchTokens),
      documents(kBatchTokens), cu_seqlens(kBatchTokens + 1);
  std::vector<std::uint8_t> mask(kBatchTokens);
  penstock::PackedFields fields{.tokens = tokens};
  if (wanted != Fields::boundaries) fields.targets = targets;
  if (wanted != Fields::inputs_and_targets) fields.cu_seqlens = std::span(cu_seqlens).first(4096);
  if (wanted == Fields::all) {
    fields.position_ids = positions;
    fields.document_ids = documents;
    fields.loss_mask = mask;
  }
  std::vector<std::uint64_t> samples;
  std::uint64_t epoch = 0;
  for (auto _ : state) {
    for (std::uint64_t batch = 0; batch < sampler.batches(); ++batch) {
      sampler.samples(epoch, batch, samples);
      benchmark::DoNotOptimize(packing.fill(samples, fields));
      benchmark::ClobberMemory();
    }
    ++epoch;
  }
  report_tokens(state, sampler.batches() * kBatchTokens);
  state.counters["padding"] = packing.padding();
}

/// A loop by hand of the kind that llm.c's loader has: one fread for each batch, without documents.
void fread_loop(benchmark::State& state) {
  std::FILE* const file = std::fopen(on_disk().path().c_str(), "rb");
  if (file == nullptr) std::abort();
  std::vector<std::uint16_t> buffer(kBatchTokens + 1);
  std::vector<std::int32_t> inputs(kBatchTokens), targets(kBatchTokens);
  constexpr std::size_t kBatches = (kTokens - 1) / kBatchTokens;
  for (auto _ : state) {
    for (std::size_t batch = 0; batch < kBatches; ++batch) {
      std::fseek(file, static_cast<long>(batch * kBatchTokens * sizeof(buffer[0])), SEEK_SET);
      if (std::fread(buffer.data(), sizeof(buffer[0]), buffer.size(), file) != buffer.size())
        std::abort();
      for (std::size_t i = 0; i < kBatchTokens; ++i) {
        inputs[i] = buffer[i];
        targets[i] = buffer[i + 1];
      }
      benchmark::DoNotOptimize(inputs.data());
      benchmark::DoNotOptimize(targets.data());
      benchmark::ClobberMemory();
    }
  }
  std::fclose(file);
  report_tokens(state, kBatches * kBatchTokens);
}

// ---- Opening, and packing

/// A file in memory, or one of which only the size is known.
class FileInMemory final : public penstock::FileReader {
 public:
  FileInMemory(std::string content, std::uint64_t size)
      : content_(std::move(content)), size_(size) {}
  const std::string& name() const noexcept override { return name_; }
  std::uint64_t size() const noexcept override { return size_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override {
    const std::size_t left = content_.size() - static_cast<std::size_t>(offset);
    const std::size_t count = std::min(target.size(), left);
    std::memcpy(target.data(), content_.data() + offset, count);
    return count;
  }
  void will_need(std::span<const penstock::FileRange>,
                 std::chrono::steady_clock::time_point) const noexcept override {}

 private:
  std::string content_, name_ = "memory";
  std::uint64_t size_;
};

/// Megatron's files of 10^6 documents, whose tokens nobody reads.
struct MegatronFiles {
  static constexpr std::uint64_t kDocuments = 1'000'000;

  MegatronFiles() {
    std::vector<std::int32_t> sizes;
    std::vector<std::int64_t> pointers, documents;
    std::int64_t end = 0;
    Lengths lengths;
    for (std::uint64_t i = 0; i < kDocuments; ++i) {
      sizes.push_back(lengths.next());
      pointers.push_back(end);
      documents.push_back(static_cast<std::int64_t>(i));
      end += sizes.back() * 2;
    }
    documents.push_back(static_cast<std::int64_t>(kDocuments));
    std::string text("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x8", 18);
    const auto add = [&](const auto& values) {
      text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
    };
    add(std::vector<std::uint64_t>{kDocuments, kDocuments + 1});
    add(sizes);
    add(pointers);
    add(documents);
    const std::uint64_t bytes = text.size();
    index = penstock::File(std::make_shared<FileInMemory>(std::move(text), bytes));
    tokens = penstock::File(
        std::make_shared<FileInMemory>(std::string(), static_cast<std::uint64_t>(end)));
  }

  penstock::File tokens = penstock::File(std::make_shared<FileInMemory>(std::string(), 0)),
                 index = tokens;
};

const MegatronFiles& megatron_files() {
  static const MegatronFiles files;
  return files;
}

void report_documents(benchmark::State& state) {
  state.counters["time/document"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(MegatronFiles::kDocuments),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void open_index(benchmark::State& state) {
  const MegatronFiles& files = megatron_files();
  for (auto _ : state)
    benchmark::DoNotOptimize(TokenFile::megatron(files.tokens, files.index).documents());
  report_documents(state);
}

void open_and_scan(benchmark::State& state) {
  open_tokens(false);
  for (auto _ : state) benchmark::DoNotOptimize(open_tokens(false).documents());
  report_tokens(state, kTokens);
}

void pack(benchmark::State& state, PackingMethod method, std::int64_t length) {
  const auto file = TokenFile::megatron(megatron_files().tokens, megatron_files().index);
  double padding = 0;
  for (auto _ : state)
    padding = Packing(file, {.length = length, .method = method, .threads = 1}).padding();
  report_documents(state);
  state.counters["padding"] = padding;
}

template <class... Arguments>
void add(const std::string& name, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), arguments...)->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  for (const bool mapped : {false, true}) {
    const std::string way = mapped ? "/mapped" : "/read";
    for (const bool shuffle : {false, true}) {
      const std::string name = "inputs_and_targets" + way + (shuffle ? "/shuffled" : "/in_order");
      add(name + "/ours", fill, PackingMethod::concatenate, Fields::inputs_and_targets, mapped,
          shuffle);
      add(name + "/fread loop", fread_loop);
    }
    for (const auto method : {PackingMethod::concatenate, PackingMethod::best_fit}) {
      const std::string how = method == PackingMethod::best_fit ? "/best_fit" : "/concatenate";
      add("boundaries" + way + how + "/ours", fill, method, Fields::boundaries, mapped, true);
      add("all_fields" + way + how + "/ours", fill, method, Fields::all, mapped, true);
    }
  }
  add("open/megatron_index/ours", open_index);
  add("open/scan/ours", open_and_scan);
  for (const std::int64_t length : {2048, 8192}) {
    add("pack/best_fit/" + std::to_string(length) + "/ours", pack, PackingMethod::best_fit, length);
    add("pack/first_fit/" + std::to_string(length) + "/ours", pack, PackingMethod::first_fit,
        length);
  }
  return penstock::benchmarks::run_side_by_side(argc, argv);
}
