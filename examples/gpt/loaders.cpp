// SPDX-License-Identifier: Apache-2.0

// gpt_loaders FILE: how many tokens a second of one core's time the loader of llm.c gives, and how
// many penstock::Packing gives, from the same file in llm.c's format. It is read once before, so
// that it is in memory.
//
// llm.c is not a part of this project: -DPENSTOCK_LLM_C=DIR, where DIR is a checkout of it,
// compiles its loader in. Without it a loop stands for it, which does the same as its description
// says: it reads the tokens of a batch and one more, and writes them twice as int, the second time
// from the second token on.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <numeric>
#include <penstock/packing.hpp>
#include <penstock/sampler.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef GPT_WITH_LLM_C
#include <llmc/dataloader.h>
#endif

namespace {

constexpr std::int64_t kBatch = 8, kLength = 1024;
constexpr std::size_t kTokens = kBatch * kLength;

using Field = std::vector<std::int32_t>;

#ifdef GPT_WITH_LLM_C
constexpr const char* kOther = "llm.c's loader";

class Other {
 public:
  explicit Other(const std::string& file) {
    dataloader_init(&loader_, file.c_str(), kBatch, kLength, 0, 1, 0);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() { dataloader_free(&loader_); }
  void next() { dataloader_next_batch(&loader_); }
  std::int64_t sum() const { return std::accumulate(loader_.inputs, loader_.inputs + kTokens, 0L); }

 private:
  DataLoader loader_{};
};
#else
constexpr const char* kOther = "a loop like llm.c's loader";

class Other {
 public:
  explicit Other(const std::string& name) : file_(std::fopen(name.c_str(), "rb")) {
    if (file_ == nullptr) throw std::runtime_error("cannot open " + name);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() { std::fclose(file_); }
  void next() {
    constexpr long kHeader = 1024;
    for (;;) {
      if (std::fseek(file_, kHeader + batch_ * static_cast<long>(2 * kTokens), SEEK_SET) != 0)
        throw std::runtime_error("cannot seek");
      if (std::fread(read_.data(), 2, kTokens + 1, file_) == kTokens + 1) break;
      if (batch_ == 0) throw std::runtime_error("the file has fewer tokens than a batch");
      batch_ = 0;
    }
    ++batch_;
    for (std::size_t i = 0; i < kTokens; ++i) {
      inputs_[i] = read_[i];
      targets_[i] = read_[i + 1];
    }
  }
  std::int64_t sum() const { return std::accumulate(inputs_.begin(), inputs_.end(), 0L); }

 private:
  std::FILE* file_;
  long batch_ = 0;
  std::vector<std::uint16_t> read_ = std::vector<std::uint16_t>(kTokens + 1);
  Field inputs_ = Field(kTokens), targets_ = Field(kTokens);
};
#endif

/// Ours, with what attention has to know of documents or without.
class Ours {
 public:
  Ours(const penstock::Packing& packing, bool positions, bool shuffle)
      : packing_(packing),
        sampler_({.samples = packing.size(),
                  .batch_size = kBatch,
                  .shuffle = shuffle,
                  .drop_last = true}) {
    if (positions) positions_.resize(kTokens);
  }
  void next() {
    sampler_.samples(0, batch_++ % sampler_.batches(), numbers_);
    packing_.fill(numbers_, {.tokens = tokens_, .targets = targets_, .position_ids = positions_});
  }
  std::int64_t sum() const { return std::accumulate(tokens_.begin(), tokens_.end(), 0L); }

 private:
  const penstock::Packing& packing_;
  penstock::Sampler sampler_;
  std::uint64_t batch_ = 0;
  std::vector<std::uint64_t> numbers_;
  Field tokens_ = Field(kTokens), targets_ = Field(kTokens), positions_;
};

/// Tokens a second of this thread's time, for about a fifth of a second.
double rate(const std::function<void()>& next) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  double passed = 0;
  std::int64_t batches = 0;
  while (passed < 0.2) {
    next();
    ++batches;
    passed = now() - start;
  }
  return static_cast<double>(batches) * static_cast<double>(kTokens) / passed;
}

void compare(const std::string& file) {
  const auto stream = penstock::TokenFile::llm_c({file});  // one document, as llm.c trains
  const auto documents = penstock::TokenFile::llm_c({file}, {.begin_of_document = 0});
  const penstock::Packing cut(stream, {.length = kLength});
  const penstock::Packing apart(documents, {.length = kLength});
  const penstock::Packing whole(documents,
                                {.length = kLength, .method = penstock::PackingMethod::best_fit});
  Other other(file);
  Ours same(cut, false, false), shuffled(cut, false, true), bounded(apart, true, true),
      fitted(whole, true, true);
  other.next();
  same.next();
  if (other.sum() != same.sum()) throw std::runtime_error("the first batches differ");
  struct Row {
    std::string name;
    std::function<void()> next;
    std::vector<double> rates = {};
  };
  std::vector<Row> rows{{kOther, [&] { other.next(); }},
                        {"Packing, the same batches", [&] { same.next(); }},
                        {"Packing, shuffled sequences", [&] { shuffled.next(); }},
                        {"  and documents apart, with positions", [&] { bounded.next(); }},
                        {"  and documents whole (best_fit)", [&] { fitted.next(); }}};
  for (int round = 0; round < 7; ++round)
    for (Row& row : rows) row.rates.push_back(rate(row.next));
  for (Row& row : rows) {
    std::nth_element(row.rates.begin(), row.rates.begin() + 3, row.rates.end());
    std::printf("%-40s %7.0f M tokens/s a core, %.2f times\n", row.name.c_str(), row.rates[3] / 1e6,
                row.rates[3] / rows.front().rates[3]);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "use: gpt_loaders FILE, in the format of llm.c\n");
    return 2;
  }
  compare(argv[1]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpt_loaders: %s\n", error.what());
  return 1;
}
