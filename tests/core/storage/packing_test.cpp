// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <penstock/packing.hpp>
#include <penstock/ranks.hpp>
#include <penstock/read_ahead.hpp>
#include <penstock/sampler.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/memory_files.hpp"
#include "support/naive_packing.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"
#include "support/token_files.hpp"

namespace penstock {
namespace {

using test::FilledBatch;
using test::MadeTexts;
using test::MemoryFile;
using test::Mentions;
using test::naive_concatenation;
using test::naive_fill;
using test::naive_packing;
using test::NaiveSequence;
using test::packed;
using test::TemporaryDirectory;
using test::thrown;

using Sequences = std::vector<std::uint64_t>;

constexpr auto kConcatenate = PackingMethod::concatenate;
constexpr auto kBestFit = PackingMethod::best_fit;
constexpr auto kFirstFit = PackingMethod::first_fit;

TokenFile in_memory(const MadeTexts& texts, TokenFileOptions options = {}) {
  options.end_of_document = MadeTexts::kEnd;
  const std::vector<File> files{File(std::make_shared<MemoryFile>("a", packed(texts.tokens)))};
  return TokenFile::raw(files, TokenType::uint16, options);
}

/// The segments of all sequences.
std::vector<NaiveSequence> naive(const MadeTexts& texts, const PackingOptions& options) {
  return options.method == kConcatenate ? naive_concatenation(texts.begins, options.length)
                                        : naive_packing(texts.begins, options);
}

std::size_t segments_of(const std::vector<NaiveSequence>& sequences) {
  return std::accumulate(
      sequences.begin(), sequences.end(), std::size_t{0},
      [](std::size_t sum, const NaiveSequence& sequence) { return sum + sequence.size(); });
}

FilledBatch filled(const Packing& packing, const Sequences& sequences, std::size_t segments,
                   ContextPart part = {}) {
  const auto width = static_cast<std::size_t>(packing.length() / part.size);
  FilledBatch batch(sequences.size(), width, segments);
  const PackedBatch told = packing.fill(sequences, batch.fields(), part);
  CHECK(told.segments == static_cast<std::int32_t>(segments));
  batch.max_seqlen = told.max_seqlen;
  batch.padding = told.padding;
  return batch;
}

Sequences numbers_below(std::uint64_t end) {
  Sequences numbers(end);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  return numbers;
}

TEST_CASE("Packing fills every field as a naive packer does", "[packing]") {
  std::mt19937 random(GENERATE(range(0U, 25U)));
  const unsigned seed = static_cast<unsigned>(random());
  const MadeTexts texts(seed, 1 + seed % 300, 1 + seed / 300 % 60, 0.2 + seed / 18000 % 3 * 0.7);
  PackingOptions options{.length = 1 + static_cast<std::int64_t>(random() % 150),
                         .method = GENERATE(kConcatenate, kBestFit, kFirstFit),
                         .window = static_cast<std::uint32_t>(1 + random() % 100),
                         .pad_token = 50256 + static_cast<std::int32_t>(random() % 2),
                         .ignore_index = random() % 2 == 0 ? -100 : -1,
                         .threads = static_cast<int>(1 + random() % 3)};
  const int parts = static_cast<int>(1 + random() % 4);
  if (parts > 1) options.length *= 2 * parts;
  const std::vector<NaiveSequence> all = naive(texts, options);
  if (all.empty()) return;
  CAPTURE(options.length, options.window, parts, texts.tokens.size());

  const Packing packing(in_memory(texts), options);
  REQUIRE(packing.size() == all.size());
  std::size_t most = 0;
  for (const NaiveSequence& sequence : all) most = std::max(most, sequence.size());
  CHECK(packing.most_segments() == static_cast<std::int64_t>(most));

  Sequences shuffled = numbers_below(packing.size());
  Sequences in_two_runs = shuffled;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  std::rotate(in_two_runs.begin(),
              in_two_runs.begin() + static_cast<std::ptrdiff_t>(random() % packing.size()),
              in_two_runs.end());
  for (const Sequences& some : {shuffled, in_two_runs, Sequences{shuffled.front()}, Sequences{}}) {
    std::vector<NaiveSequence> chosen;
    for (const std::uint64_t sequence : some) chosen.push_back(all[sequence]);
    for (int rank = 0; rank < parts; ++rank) {
      const ContextPart part{.rank = rank, .size = parts};
      const FilledBatch batch = filled(packing, some, segments_of(chosen), part);
      CHECK(batch == naive_fill(texts.tokens, chosen, options, part));
    }
  }
}

TEST_CASE("Packing has each token once", "[packing]") {
  const MadeTexts texts(7, 700, 90, 1.2);
  const auto method = GENERATE(kConcatenate, kBestFit, kFirstFit);
  const std::int64_t length = GENERATE(1, 64, 1000);
  const Packing packing(in_memory(texts), {.length = length, .method = method, .window = 100});
  std::vector<int> times(texts.tokens.size(), 0);
  std::uint64_t padding = 0;
  for (const NaiveSequence& sequence : naive(texts, packing.options()))
    for (const auto& segment : sequence) {
      for (std::int64_t i = 0; !segment.is_padding && i < segment.count; ++i)
        ++times[segment.token + static_cast<std::uint64_t>(i)];
      if (segment.is_padding) padding += static_cast<std::uint64_t>(segment.count);
    }
  const auto in_no_sequence = static_cast<std::uint64_t>(std::ranges::count(times, 0));
  CHECK(packing.left_out() == in_no_sequence);
  const std::uint64_t in_all = packing.size() * static_cast<std::uint64_t>(length);
  CHECK(in_no_sequence == (method == kConcatenate ? times.size() - in_all : 0));
  CHECK(static_cast<std::uint64_t>(std::ranges::count(times, 1)) == times.size() - in_no_sequence);
  const double room = static_cast<double>(packing.size()) * static_cast<double>(length);
  CHECK(packing.padding() * room == Approx(static_cast<double>(padding)).margin(1e-3));
}

TEST_CASE("best fit pads at most 1 % of texts of lognormal lengths", "[packing]") {
  const MadeTexts texts(1, 20'000, 450, 1.1);
  const TokenFile file = in_memory(texts);
  for (const std::int64_t length : {2048, 8192}) {
    const Packing best(file, {.length = length, .method = kBestFit});
    const Packing first(file, {.length = length, .method = kFirstFit});
    CAPTURE(length, best.padding(), first.padding());
    CHECK(best.padding() > 0);
    CHECK(best.padding() < 0.01);
    CHECK(best.padding() < first.padding());
  }
}

TEST_CASE("Packing is the same for any number of threads", "[packing]") {
  const MadeTexts texts(2, 2000, 30, 1.5);
  const TokenFile file = in_memory(texts);
  const auto method = GENERATE(kBestFit, kFirstFit);
  const auto all_of = [&](int threads) {
    const Packing packing(file,
                          {.length = 100, .method = method, .window = 70, .threads = threads});
    std::vector<std::int32_t> tokens(packing.size() * 100);
    packing.fill(numbers_below(packing.size()), {.tokens = tokens});
    return tokens;
  };
  const auto one = all_of(1);
  for (const int threads : {0, 2, 3, 29, 30}) CHECK(all_of(threads) == one);
}

TEST_CASE("Packing packs documents of no tokens, and a document that is one window", "[packing]") {
  const std::vector<std::uint16_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto file = TokenFile::megatron(
      File(std::make_shared<MemoryFile>("a.bin", packed(tokens))),
      File(std::make_shared<MemoryFile>(
          "a.idx", test::megatron_index(8, 2, {2, 0, 5, 2}, {0, 0, 1, 2, 3, 3, 4, 4}))));
  REQUIRE(file.documents() == 7);
  std::vector<std::int32_t> cu_seqlens(6), rows(9);
  const Packing whole(file, {.length = 3});
  CHECK(whole.most_segments() == 2);
  CHECK(whole.fill(Sequences{0, 1, 2}, {.tokens = rows, .cu_seqlens = cu_seqlens}).segments == 5);
  CHECK(cu_seqlens == std::vector<std::int32_t>{0, 2, 3, 6, 7, 9});
  const Packing best(file, {.length = 3, .method = kBestFit, .window = 1});
  CHECK(best.size() == 4);
  rows.resize(12);
  best.fill(Sequences{0, 1, 2, 3}, {.tokens = rows});
  CHECK(rows == std::vector<std::int32_t>{1, 2, 0, 6, 7, 0, 3, 4, 5, 8, 9, 0});
}

TEST_CASE("Packing fills fields that are given, and repeats the last of cu_seqlens", "[packing]") {
  const MadeTexts texts(3, 100, 20, 1);
  const Packing packing(in_memory(texts), {.length = 64, .method = kBestFit});
  const Sequences sequences{3, 1};
  std::vector<std::int32_t> tokens(128), alone(128), cu_seqlens(200, -7);
  packing.fill(sequences, {.tokens = alone});
  const PackedBatch batch = packing.fill(sequences, {.tokens = tokens, .cu_seqlens = cu_seqlens});
  CHECK(tokens == alone);
  CHECK(cu_seqlens[0] == 0);
  const auto behind = static_cast<std::size_t>(batch.segments);
  CHECK(cu_seqlens[behind - 1] < 128);
  for (std::size_t i = behind; i < cu_seqlens.size(); ++i) CHECK(cu_seqlens[i] == 128);
  CHECK(batch.segments <= 2 * packing.most_segments());

  cu_seqlens.resize(behind);
  const auto fill = [&] { packing.fill(sequences, {.tokens = tokens, .cu_seqlens = cu_seqlens}); };
  CHECK(thrown<std::length_error>(fill) ==
        "Packing::fill: cu_seqlens has room for " + std::to_string(behind) +
            " values, and the batch has " + std::to_string(behind + 1));
}

TEST_CASE("Packing does not allocate when it fills", "[packing]") {
  const TemporaryDirectory directory;
  const MadeTexts texts(4, 300, 40, 1);
  const auto file =
      TokenFile::raw({texts.write(directory / "a.bin")}, TokenType::uint16,
                     {.end_of_document = MadeTexts::kEnd, .mapped = GENERATE(false, true)});
  const Packing packing(file, {.length = 256, .method = GENERATE(kConcatenate, kBestFit)});
  FilledBatch batch(4, 256, 4 * 257);
  const Sequences sequences{0, 9, 3, 7};
  const std::uint64_t before = test::allocations_of_this_thread();
  packing.fill(sequences, batch.fields());
  packing.will_need(sequences);
  CHECK(test::allocations_of_this_thread() == before);
}

TEST_CASE("Packing refuses options, spans and sequences that are wrong", "[packing]") {
  const MadeTexts texts(5, 50, 20, 1);
  const TokenFile file = in_memory(texts);
  const auto refused = [&](PackingOptions options) {
    return thrown<std::invalid_argument>([&] { Packing(file, options); });
  };
  CHECK_THAT(refused({}), Mentions("Packing: length is 0, must be 1 to 2^30"));
  CHECK_THAT(refused({.length = (1 << 30) + 1}), Mentions("length is 1073741825"));
  CHECK_THAT(refused({.length = 8, .window = 0}), Mentions("window is 0, must be 1 to 65536"));
  CHECK_THAT(refused({.length = 8, .window = 65'537}), Mentions("window is 65537"));
  CHECK_THAT(refused({.length = 8, .threads = -1}), Mentions("threads is -1"));
  CHECK_THAT(refused({.length = 1 << 20}), Mentions("too few for a sequence of 1048576"));

  const Packing packing(file, {.length = 24});
  std::vector<std::int32_t> right(48, -7), wrong(47);
  std::vector<std::uint8_t> mask(49);
  const Sequences two{0, 1};
  const auto refused_fill = [&](const Sequences& sequences, const PackedFields& fields,
                                ContextPart part = {}) {
    return thrown<std::invalid_argument>([&] { packing.fill(sequences, fields, part); });
  };
  CHECK_THAT(refused_fill(two, {}), Mentions("a span of 0 values for tokens, where 2 sequences "
                                             "have 48"));
  CHECK_THAT(refused_fill(two, {.tokens = wrong}), Mentions("a span of 47 values for tokens"));
  CHECK_THAT(refused_fill(two, {.tokens = right, .targets = wrong}), Mentions("for targets"));
  CHECK_THAT(refused_fill(two, {.tokens = right, .position_ids = wrong}),
             Mentions("for position_ids"));
  CHECK_THAT(refused_fill(two, {.tokens = right, .document_ids = wrong}),
             Mentions("for document_ids"));
  CHECK_THAT(refused_fill(two, {.tokens = right, .loss_mask = mask}),
             Mentions("a span of 49 values for loss_mask"));
  CHECK_THAT(refused_fill(two, {.tokens = right}, {.rank = 2, .size = 2}),
             Mentions("rank 2 of 2 of context parallelism"));
  CHECK_THAT(refused_fill(two, {.tokens = right}, {.rank = 0, .size = 0}), Mentions("rank 0 of 0"));
  CHECK_THAT(refused_fill(two, {.tokens = right}, {.rank = -1, .size = 2}), Mentions("rank -1"));
  CHECK_THAT(refused_fill(two, {.tokens = right}, {.rank = 1, .size = 5}),
             Mentions("sequences of 24 tokens cannot be cut into 2 x 5 chunks"));
  CHECK_THAT(thrown<std::out_of_range>([&] {
               packing.fill(Sequences{0, packing.size()}, {.tokens = right});
             }),
             Mentions("Packing: there is no sequence " + std::to_string(packing.size())));
  CHECK(std::ranges::count(right, -7) == 48);
  CHECK_THROWS_AS(packing.name(packing.size()), std::out_of_range);
  CHECK(packing.name(2) == "a, token 48");
  const Packing long_ones(file, {.length = 512});
  const Sequences many(std::size_t{1} << 22, 0);
  CHECK_THAT(thrown<std::invalid_argument>([&] { long_ones.fill(many, {.tokens = right}); }),
             Mentions("4194304 sequences have 2^31 tokens or more"));
}

TEST_CASE("Packing passes on what is wrong with a token", "[packing]") {
  const MadeTexts texts(6, 50, 20, 1);
  const Packing packing(in_memory(texts, {.vocabulary = 50256}),
                        {.length = 32, .method = GENERATE(kConcatenate, kBestFit)});
  std::vector<std::int32_t> tokens(32 * packing.size());
  CHECK_THAT(
      thrown<StoreError>([&] { packing.fill(numbers_below(packing.size()), {.tokens = tokens}); }),
      Mentions("is 50256, outside of the vocabulary of 50256"));
}

TEST_CASE("Packing asks Files that are elsewhere for all sequences of a batch", "[packing]") {
  std::vector<std::uint16_t> tokens;
  for (const int count : {6, 10, 3, 9})
    for (int i = 1; i <= count; ++i)
      tokens.push_back(static_cast<std::uint16_t>(i == count ? 50256 : i));
  const auto memory = std::make_shared<MemoryFile>("a", packed(tokens));
  const auto file = TokenFile::raw(std::vector<File>{File(memory)}, TokenType::uint16,
                                   {.end_of_document = 50256});
  const Packing packing(file, {.length = 12, .method = kBestFit});
  REQUIRE(packing.size() == 3);  // {10}, {3, 9}, {6}
  std::vector<std::int32_t> rows(24);
  memory->ranges.clear();
  memory->reads = 0;
  packing.fill(Sequences{1, 0}, {.tokens = rows});
  CHECK(memory->ranges == test::Asked{{12, 20}, {32, 6}, {38, 18}});
  CHECK(memory->reads == 2);  // The two documents lie together.
  memory->ranges.clear();
  packing.will_need(Sequences{2, 3}, test::Time{std::chrono::seconds(3)});
  CHECK(memory->ranges == test::Asked{{0, 12}});
  CHECK(read_ahead(packing, 4).batches == 4);
}

TEST_CASE("Packing may be used by many threads", "[packing]") {
  const TemporaryDirectory directory;
  const MadeTexts texts(8, 400, 40, 1);
  const auto file = TokenFile::raw({texts.write(directory / "a.bin")}, TokenType::uint16,
                                   {.end_of_document = MadeTexts::kEnd});
  const Packing packing(file, {.length = 128, .method = kBestFit, .window = 50});
  const Sequences all = numbers_below(packing.size());
  const std::size_t segments = segments_of(naive(texts, packing.options()));
  const FilledBatch expected = filled(packing, all, segments);
  std::vector<FilledBatch> found(4, FilledBatch(all.size(), 128, segments));
  std::vector<std::thread> threads;
  for (FilledBatch& batch : found)
    threads.emplace_back([&] {
      const PackedBatch told = packing.fill(all, batch.fields());
      batch.max_seqlen = told.max_seqlen;
      batch.padding = told.padding;
    });
  for (std::thread& thread : threads) thread.join();
  for (const FilledBatch& batch : found) CHECK(batch == expected);
}

// ---- Runs

/// Adds one to the count of each token of the next `batches` batches of all ranks; returns the
/// state behind them.
State run(const Packing& packing, const std::vector<Sampler>& ranks, std::uint64_t batches,
          std::vector<int>& times) {
  const State start = ranks.front().start();
  const std::uint64_t end = std::min(start.batch + batches, ranks.front().batches());
  Sequences samples;
  std::vector<std::int32_t> tokens;
  for (const Sampler& sampler : ranks)
    for (std::uint64_t batch = start.batch; batch < end; ++batch) {
      sampler.samples(start.epoch, batch, samples);
      tokens.resize(samples.size() * static_cast<std::size_t>(packing.length()));
      packing.fill(samples, {.tokens = tokens});
      for (const std::int32_t token : tokens) ++times[static_cast<std::size_t>(token)];
    }
  State state = start;
  state.batch = end;
  return state;
}

TEST_CASE("a run over a Packing goes on with other ranks, and has each token once", "[packing]") {
  // Each token is its own number, so that those that were delivered can be counted.
  constexpr std::size_t kSequences = 6 * 7 * 8 * 5, kLength = 16;
  std::vector<std::uint32_t> tokens(kSequences * kLength);
  std::iota(tokens.begin(), tokens.end(), 1u);
  const auto file =
      TokenFile::raw(std::vector<File>{File(std::make_shared<MemoryFile>("a", packed(tokens)))},
                     TokenType::uint32);
  const Packing packing(file, {.length = kLength, .method = GENERATE(kConcatenate, kBestFit)});
  REQUIRE(packing.size() == kSequences);
  const auto on = [&](int world_size, std::int64_t batch_size, const State* resumed) {
    std::vector<Sampler> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      const SamplerOptions options{.samples = packing.size(),
                                   .batch_size = batch_size,
                                   .shuffle = true,
                                   .seed = 5,
                                   .rank = rank,
                                   .world_size = world_size};
      ranks.push_back(resumed == nullptr ? Sampler(options) : Sampler(options, *resumed));
    }
    return ranks;
  };
  std::vector<int> times(tokens.size() + 1, 0);
  const State on_8 = run(packing, on(8, 5, nullptr), 21, times);
  CHECK(std::ranges::count(times, 1) == 21 * 8 * 5 * static_cast<std::ptrdiff_t>(kLength));
  run(packing, on(6, 4, &on_8), ~0ull >> 1, times);
  CHECK(std::ranges::count(times, 1) == static_cast<std::ptrdiff_t>(tokens.size()));
}

/// A file of 10^12 tokens of 32 bits, which are computed.
class ComputedTokens final : public FileReader {
 public:
  static constexpr std::uint64_t kTokens = 1'000'000'000'000;

  static std::uint32_t token(std::uint64_t index) {
    return static_cast<std::uint32_t>(index * 0x9E3779B97F4A7C15 >> 33);
  }

  const std::string& name() const noexcept override { return name_; }
  std::uint64_t size() const noexcept override { return kTokens * 4; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> target) const override {
    for (std::size_t i = 0; i < target.size(); ++i) {
      const std::uint32_t value = token((offset + i) / 4);
      target[i] = static_cast<std::byte>(value >> (offset + i) % 4 * 8);
    }
    return target.size();
  }
  void will_need(std::span<const FileRange>,
                 std::chrono::steady_clock::time_point) const noexcept override {}

 private:
  std::string name_ = "computed";
};

TEST_CASE("a run over 10^12 tokens goes on in the middle within 10 ms", "[packing]") {
  const std::vector<File> files{File(std::make_shared<ComputedTokens>())};
  std::vector<std::int32_t> tokens(4 * 2048);
  Sequences samples;
  auto least = std::chrono::steady_clock::duration::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    const Packing packing(TokenFile::raw(files, TokenType::uint32), {.length = 2048});
    const SamplerOptions options{.samples = packing.size(),
                                 .batch_size = 4,
                                 .shuffle = true,
                                 .seed = 5,
                                 .rank = 0,
                                 .world_size = 8};
    State saved = Sampler(options).start();
    saved.batch = Sampler(options).batches() / 2;
    SamplerOptions on_6 = options;
    on_6.rank = 5;
    on_6.world_size = 6;
    const Sampler sampler(on_6, saved);
    sampler.samples(sampler.start().epoch, sampler.start().batch, samples);
    packing.fill(samples, {.tokens = tokens});
    least = std::min(least, std::chrono::steady_clock::now() - begin);
    CHECK(packing.left_out() == ComputedTokens::kTokens % 2048);
  }
  CHECK(least < std::chrono::milliseconds(10));
  REQUIRE(samples.size() == 4);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    wrong += static_cast<std::uint32_t>(tokens[i]) !=
                     ComputedTokens::token(samples[i / 2048] * 2048 + i % 2048)
                 ? 1
                 : 0;
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace penstock
