// SPDX-License-Identifier: Apache-2.0

// Sources that are asked for one sample at a time, by all workers together.

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace penstock::test {
namespace {

void write_row(const Sample& sample, Numbers& batch) {
  batch.sample(sample.row) = sample.index;
  for (std::int64_t j = 0; j < kPayload; ++j)
    batch.payload(sample.row, j) = payload_of(sample.index, j);
}

/// Delivers everything, and checks every payload. The numbers of the samples, in order.
std::vector<std::uint64_t> delivered_numbers(Prefetcher<Numbers>& prefetcher,
                                             std::int64_t batch_size, std::size_t batches) {
  TestStream stream;
  NumbersSink sink(batch_size, batches);
  while (auto batch = prefetcher.next(stream)) {
    CHECK(batch.ticket().samples.size() == static_cast<std::size_t>(batch->sample.extent(0)));
    sink.take(batch, stream);
  }
  sink.wait(stream);
  return sink.all_sample_numbers();
}

TEST_CASE("per_sample: the same batches for any number of workers", "[per_sample]") {
  const int workers = GENERATE(0, 1, 2, 5);
  const std::int64_t batch_size = GENERATE(1, 4, 13);
  const Sampler sampler = shuffled(50, batch_size);
  Prefetcher<Numbers> prefetcher(numbers_layout(batch_size), sampler, per_sample(write_row),
                                 {.workers = workers, .epochs = 2});
  CHECK(delivered_numbers(prefetcher, batch_size, 2 * sampler.batches()) ==
        serial_sample_numbers(sampler, 2));
  const Stats stats = prefetcher.stats();
  CHECK(stats.workers == std::max(workers, 1));
  CHECK(stats.host_depth == 4);
  CHECK(stats.source.batches == 2 * sampler.batches());
}

TEST_CASE("per_sample: each sample is asked for once, with its own seed", "[per_sample]") {
  const Sampler sampler = shuffled(40, 8);
  std::mutex mutex;
  std::multiset<std::uint64_t> asked;
  std::set<std::uint64_t> seeds;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(8), sampler,
                                  per_sample([&](const Sample& sample, Numbers& batch) {
                                    write_row(sample, batch);
                                    const std::lock_guard lock(mutex);
                                    asked.insert(sample.index);
                                    seeds.insert(sample.seed);
                                    if (sample.seed != sample_seed(11, sample.epoch, sample.index))
                                      asked.insert(1000);
                                  }),
                                  pool, {.workers = 3});
  while (producer.next()) {
  }
  CHECK(asked.size() == 40);
  CHECK(std::set<std::uint64_t>(asked.begin(), asked.end()).size() == 40);
  CHECK(seeds.size() == 40);
}

TEST_CASE("per_sample: all workers fill the first batch together", "[per_sample]") {
  constexpr int kWorkers = 4;
  std::atomic<int> inside{0};
  std::atomic<bool> all{false};
  // Nobody leaves the first row before all have one of the first batch.
  const auto source = [&](const Sample& sample, Numbers& batch) {
    write_row(sample, batch);
    if (sample.batch != 0) return;
    if (++inside == kWorkers) all = true;
    while (!all) std::this_thread::yield();
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(kWorkers), sequential(3 * kWorkers, kWorkers),
                                  per_sample(source), pool, {.workers = kWorkers});
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(producer.next()->ticket().batch == i);
  CHECK_FALSE(producer.next());
}

TEST_CASE("per_sample: no batch is begun while an older one has rows left", "[per_sample]") {
  std::atomic<bool> open{false};
  std::vector<std::uint64_t> begun;  // by the worker that is not held
  // One worker is held in the first row; the other one goes through all that is left.
  const auto source = [&](const Sample& sample, Numbers& batch) {
    write_row(sample, batch);
    if (sample.index == 0)
      while (!open) std::this_thread::yield();
    else if (!open)
      begun.push_back(sample.index);
    if (sample.index == 63) open = true;
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(16), sequential(64, 16), per_sample(source), pool,
                                  {.workers = 2, .depth = 4});
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(producer.next()->ticket().batch == i);
  CHECK(begun.size() == 63);
  CHECK(std::is_sorted(begun.begin(), begun.end()));
}

TEST_CASE("per_sample: one failure is the failure of its batch, the first row's", "[per_sample]") {
  const int workers = GENERATE(1, 3);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(16, 4),
                                 per_sample([](const Sample& sample, Numbers& batch) {
                                   if (sample.index == 6 || sample.index == 5)
                                     throw std::runtime_error("bad image");
                                   write_row(sample, batch);
                                 }),
                                 {.workers = workers});
  TestStream stream;
  CHECK(prefetcher.next(stream).ticket().batch == 0);
  try {
    prefetcher.next(stream);
    FAIL("no exception");
  } catch (const SourceError& error) {
    CHECK(error.batch() == 1);
    CHECK_THAT(error.what(), Mentions("sample 5: bad image"));
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::runtime_error);
  }
  CHECK(prefetcher.next(stream).ticket().batch == 2);
}

TEST_CASE("per_sample, skip: a batch is shorter by the samples that fail", "[per_sample]") {
  const int workers = GENERATE(1, 3);
  const std::set<std::uint64_t> bad{0, 5, 6, 15, 20, 21, 22, 23};
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(28, 4),
                                 per_sample([&](const Sample& sample, Numbers& batch) {
                                   if (bad.count(sample.index) != 0)
                                     throw std::runtime_error("bad image");
                                   write_row(sample, batch);
                                 }),
                                 {.workers = workers, .on_failure = FailurePolicy::skip()});
  std::vector<std::uint64_t> good;
  for (std::uint64_t i = 0; i < 28; ++i)
    if (bad.count(i) == 0) good.push_back(i);
  CHECK(delivered_numbers(prefetcher, 4, 7) == good);
  CHECK(prefetcher.stats().skipped == bad.size());
  const auto failures = prefetcher.failures();
  REQUIRE(failures.size() == bad.size());
  CHECK(failures[1].batch == 1);
  CHECK(failures[1].samples == std::vector<std::uint64_t>{5});
  CHECK_FALSE(failures[1].replaced);
}

TEST_CASE("per_sample, skip: rows of one batch fail on several workers at the same time",
          "[per_sample]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(256), sequential(2560, 256),
                                  per_sample([](const Sample& sample, Numbers& batch) {
                                    std::this_thread::yield();
                                    if (sample.index % 2 != 0)
                                      throw std::runtime_error("bad image");
                                    write_row(sample, batch);
                                  }),
                                  pool, {.workers = 4, .on_failure = FailurePolicy::skip()});
  while (auto batch = producer.next()) CHECK(batch->samples() == 128);
  CHECK(producer.skipped() == 1280);
}

TEST_CASE("per_sample, replace: another sample takes the row, the same in every run",
          "[per_sample]") {
  const std::set<std::uint64_t> bad{1, 6, 7, 13};
  const auto run = [&](int workers) {
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(16, 4),
                                   per_sample([&](const Sample& sample, Numbers& batch) {
                                     if (bad.count(sample.index) != 0)
                                       throw std::runtime_error("bad image");
                                     write_row(sample, batch);
                                   }),
                                   {.workers = workers, .on_failure = FailurePolicy::replace()});
    auto numbers = delivered_numbers(prefetcher, 4, 4);
    CHECK(prefetcher.stats().replaced == bad.size());
    CHECK(prefetcher.stats().skipped == 0);
    return numbers;
  };
  const auto first = run(1);
  REQUIRE(first.size() == 16);
  for (std::uint64_t i = 0; i < 16; ++i)
    if (bad.count(i) == 0)
      CHECK(first[i] == i);
    else
      CHECK(bad.count(first[i]) == 0);
  CHECK(run(4) == first);
}

/// Says no more than it must: not how large the data set is.
struct FourBatches {
  std::uint64_t batches() const { return 4; }
  void samples(std::uint64_t, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
    for (std::uint64_t i = 0; i < 4; ++i) out.push_back(4 * batch + i);
  }
};

TEST_CASE("per_sample, replace: of the epoch's batches, where nothing says how large the data are",
          "[per_sample]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), FourBatches(),
                                  per_sample([&](const Sample& sample, Numbers& batch) {
                                    if (sample.index == 5) throw std::runtime_error("no");
                                    write_row(sample, batch);
                                  }),
                                  pool, {.workers = 1, .on_failure = FailurePolicy::replace()});
  REQUIRE(producer.next());
  const auto batch = producer.next();
  REQUIRE(batch);
  CHECK(batch->ticket().samples[1] < 16);
  CHECK(batch->ticket().samples[1] != 5);
  CHECK(producer.replaced() == 1);
}

/// One batch of two samples.
struct TwoSamples {
  std::uint64_t batches() const { return 1; }
  void samples(std::uint64_t, std::uint64_t, std::vector<std::uint64_t>& out) const {
    out.insert(out.end(), {0, 1});
  }
};

TEST_CASE("per_sample, replace: of two samples, the one for the other", "[per_sample]") {
  const std::uint64_t bad = GENERATE(0, 1);
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(2), TwoSamples(),
                                  per_sample([&](const Sample& sample, Numbers& batch) {
                                    if (sample.index == bad) throw std::runtime_error("no");
                                    write_row(sample, batch);
                                  }),
                                  pool, {.workers = 1, .on_failure = FailurePolicy::replace()});
  const auto batch = producer.next();
  REQUIRE(batch);
  CHECK(batch->ticket().samples[0] == 1 - bad);
  CHECK(batch->ticket().samples[1] == 1 - bad);
}

TEST_CASE("per_sample, replace: three others are tried", "[per_sample]") {
  int tries = 0;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), sequential(1000, 4),
                                  per_sample([&](const Sample& sample, Numbers& batch) {
                                    write_row(sample, batch);
                                    if (sample.batch != 0 || sample.row != 1) return;
                                    ++tries;
                                    throw std::runtime_error("no");
                                  }),
                                  pool, {.workers = 1, .on_failure = FailurePolicy::replace()});
  CHECK_THROWS_AS(producer.next(), SourceError);
  CHECK(tries == 1 + 3);
}

/// Cannot name the samples of batch 1.
struct NoSecondBatch : FourBatches {
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
    if (batch == 1) throw std::runtime_error("no such batch");
    FourBatches::samples(epoch, batch, out);
  }
};

TEST_CASE("per_sample: a batch whose samples nobody can name is an error in its place",
          "[per_sample]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), NoSecondBatch(), per_sample(write_row), pool,
                                  {.workers = 2});
  for (std::uint64_t number = 0; number < 4; ++number)
    if (number == 1)
      CHECK_THAT(thrown<SourceError>([&] { producer.next(); }), Mentions("no such batch"));
    else
      CHECK(producer.next()->ticket().batch == number);
  CHECK_FALSE(producer.next());
}

TEST_CASE("per_sample: the failure beyond the limit is thrown, counted in samples",
          "[per_sample]") {
  const auto policy = GENERATE(0, 1) == 0 ? FailurePolicy::skip(2) : FailurePolicy::replace(2);
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(16, 4),
                                 per_sample([](const Sample& sample, Numbers& batch) {
                                   if (sample.index % 4 == 1) throw std::runtime_error("no");
                                   write_row(sample, batch);
                                 }),
                                 {.workers = 2, .on_failure = policy});
  TestStream stream;
  for (int i = 0; i < 2; ++i) CHECK(prefetcher.next(stream));
  CHECK_THROWS_AS(prefetcher.next(stream), SourceError);
  CHECK_THROWS_AS(prefetcher.next(stream), SourceError);
  CHECK_FALSE(prefetcher.next(stream));
  CHECK(prefetcher.stats().skipped + prefetcher.stats().replaced == 2);
}

TEST_CASE("per_sample: a source may not change the batch itself", "[per_sample]") {
  Prefetcher<Numbers> prefetcher(numbers_layout(2), sequential(2, 2),
                                 per_sample([](const Sample& sample, Numbers& batch) {
                                   write_row(sample, batch);
                                   batch.seed = 5;
                                 }),
                                 {.workers = 1});
  TestStream stream;
  CHECK_THROWS_WITH(prefetcher.next(stream), Mentions("a per_sample source changed the batch"));
}

struct Texts {
  Ragged<std::int32_t> tokens;
};

TEST_CASE("per_sample: ragged rows lie in row order, without those that are skipped",
          "[per_sample][ragged]") {
  const int workers = GENERATE(1, 4);
  const auto length = [](std::uint64_t index) { return static_cast<std::size_t>(index * 7 % 5); };
  PinnedPool pool;
  BatchProducer<Texts> producer(Layout<Texts>{16}.field(&Texts::tokens, Capacity{16 * 5}),
                                shuffled(64, 16),
                                per_sample([&](const Sample& sample, Texts& batch) {
                                  if (sample.index % 9 == 4) throw std::runtime_error("no");
                                  const std::vector<std::int32_t> tokens(
                                      length(sample.index), static_cast<int>(sample.index));
                                  batch.tokens.assign(sample.row, tokens);
                                  std::this_thread::yield();
                                }),
                                pool, {.workers = workers, .on_failure = FailurePolicy::skip()});
  while (auto batch = producer.next()) {
    const auto& tokens = (*batch)->tokens;
    REQUIRE(tokens.size() == static_cast<std::int64_t>(batch->ticket().samples.size()));
    for (std::int64_t row = 0; row < tokens.size(); ++row) {
      const std::uint64_t index = batch->ticket().samples[static_cast<std::size_t>(row)];
      CHECK(tokens.values(row).size() == length(index));
      for (const std::int32_t token : tokens.values(row)) CHECK(token == static_cast<int>(index));
    }
    CHECK(tokens.offsets()[tokens.size()] == tokens.total());
  }
  CHECK(producer.skipped() == 7);
}

TEST_CASE("per_sample, replace: a row that failed after it was assigned keeps its room",
          "[per_sample][ragged]") {
  const std::uint64_t bad = GENERATE(0u, 1u);  // the first values of the batch, or later ones
  const bool fits = GENERATE(false, true);
  PinnedPool pool;
  BatchProducer<Texts> producer(Layout<Texts>{2}.field(&Texts::tokens, Capacity{fits ? 9 : 8}),
                                sequential(20, 2),
                                per_sample([&](const Sample& sample, Texts& batch) {
                                  batch.tokens.assign(sample.row, std::vector<std::int32_t>(3));
                                  if (sample.index == bad) throw std::runtime_error("no");
                                }),
                                pool, {.workers = 1, .on_failure = FailurePolicy::replace()});
  if (fits) {
    const auto batch = producer.next();
    REQUIRE(batch);
    CHECK((*batch)->tokens.total() == 6);
  } else {
    CHECK_THAT(
        thrown<SourceError>([&] { producer.next(); }),
        Mentions("3 of them in attempts that failed and were replaced") && Mentions("room for 8"));
  }
}

struct TwoTexts {
  Ragged<std::int32_t> first;
  Ragged<std::int32_t> second;
};

/// Rows of which some fail, before, between and behind their assignments; what they ask for.
struct Demand {
  static constexpr std::uint64_t batches = 8;
  static constexpr std::int64_t rows = 16;
  std::array<std::atomic<std::int64_t>, batches> first{}, second{};

  void fill(const Sample& sample, TwoTexts& batch) {
    const auto index = static_cast<std::int32_t>(sample.index);
    const auto assign = [&](const Ragged<std::int32_t>& field, std::int64_t length, auto& sum) {
      sum.at(sample.batch) += length;
      std::this_thread::yield();
      for (std::int32_t& value : field.allocate(sample.row, length)) value = index;
    };
    if (index % 11 == 1) throw std::runtime_error("before");
    assign(batch.first, index % 7, first);
    if (index % 5 == 2) throw std::runtime_error("between");
    assign(batch.second, index % 3, second);
    if (index % 13 == 4) throw std::runtime_error("behind");
  }
};

TEST_CASE("per_sample, replace: which batches find room does not depend on the workers",
          "[per_sample][ragged]") {
  const auto run = [](std::int64_t first, std::int64_t second, int workers, Demand& demand) {
    PinnedPool pool;
    BatchProducer<TwoTexts> producer(
        Layout<TwoTexts>{Demand::rows}
            .field(&TwoTexts::first, Capacity{first})
            .field(&TwoTexts::second, Capacity{second}),
        shuffled(Demand::batches * Demand::rows, Demand::rows),
        per_sample([&](const Sample& sample, TwoTexts& batch) { demand.fill(sample, batch); }),
        pool, {.workers = workers, .on_failure = FailurePolicy::replace()});
    std::vector<std::vector<std::uint64_t>> samples;  // of each batch; none: it was thrown for
    for (bool more = true; more;) try {
        const auto batch = producer.next();
        more = batch.has_value();
        if (!more) break;
        samples.emplace_back(batch->ticket().samples.begin(), batch->ticket().samples.end());
        for (std::int64_t row = 0; row < Demand::rows; ++row) {
          const std::uint64_t index = samples.back()[static_cast<std::size_t>(row)];
          CHECK((*batch)->first.values(row).size() == index % 7);
          for (const std::int32_t value : (*batch)->first.values(row))
            CHECK(value == static_cast<std::int32_t>(index));
        }
      } catch (const SourceError&) {
        samples.emplace_back();
      }
    return samples;
  };
  Demand demand;
  const auto all = run(1000, 1000, 1, demand);
  REQUIRE(all.size() == Demand::batches);
  // Just enough for the k-th batch, or one value less, of either field.
  for (std::uint64_t k = 0; k < Demand::batches; ++k)
    for (const std::int64_t less : {0, 1})
      for (const bool of_first : {true, false}) {
        const std::int64_t first = of_first ? demand.first.at(k) - less : 1000;
        const std::int64_t second = of_first ? 1000 : demand.second.at(k) - less;
        std::vector<std::vector<std::uint64_t>> expected;
        for (std::uint64_t i = 0; i < Demand::batches; ++i) {
          const bool fits = demand.first.at(i) <= first && demand.second.at(i) <= second;
          expected.push_back(fits ? all[i] : std::vector<std::uint64_t>());
        }
        for (const int workers : {1, 2, 4, 8}) {
          Demand again;
          CHECK(run(first, second, workers, again) == expected);
        }
      }
}

TEST_CASE("per_sample: a row without room fails its batch, also where the source hides it",
          "[per_sample][ragged]") {
  const bool throws_another = GENERATE(false, true);
  const auto policy =
      std::array{FailurePolicy::abort(), FailurePolicy::skip(), FailurePolicy::replace()}.at(
          static_cast<std::size_t>(GENERATE(0, 1, 2)));
  PinnedPool pool;
  BatchProducer<Texts> producer(
      Layout<Texts>{4}.field(&Texts::tokens, Capacity{10}), sequential(8, 4),
      per_sample([&](const Sample& sample, Texts& batch) {
        try {
          batch.tokens.assign(sample.row, std::vector<std::int32_t>(sample.batch == 0 ? 3 : 2));
        } catch (const std::exception& error) {
          if (throws_another) throw std::runtime_error(std::string("file 7: ") + error.what());
        }
      }),
      pool, {.workers = 2, .on_failure = policy});
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
             Mentions("field tokens") && Mentions("Capacity"));
  CHECK(producer.next()->ticket().batch == 1);
  CHECK(producer.skipped() + producer.replaced() == 0);
}

/// A continued epoch of 40 batches, of which 3 are left; it does not say how large the data set is.
struct LastOfForty {
  std::uint64_t batches() const { return 40; }
  State start() const {
    return {.epoch = 1, .batch = 37, .batches = 40, .part_batch = 37, .part_samples = 148};
  }
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const {
    if (epoch == 1 && batch < 37) throw std::out_of_range("this batch was delivered before");
    FourBatches().samples(epoch, batch, out);
  }
};

TEST_CASE("per_sample, replace: of the batches that a continued epoch has", "[per_sample]") {
  for (std::uint64_t bad = 148; bad < 160; ++bad) {
    PinnedPool pool;
    BatchProducer<Numbers> producer(
        numbers_layout(4), LastOfForty(), per_sample([&](const Sample& sample, Numbers& batch) {
          if (sample.index == bad) throw std::runtime_error("no");
          write_row(sample, batch);
        }),
        pool, {.workers = 1, .epochs = 2, .on_failure = FailurePolicy::replace()});
    std::uint64_t batches = 0;
    while (const auto batch = producer.next()) {
      ++batches;
      for (const std::uint64_t sample : batch->ticket().samples) {
        CHECK(sample >= 148);
        CHECK(sample != bad);
      }
    }
    CHECK(batches == 3);
    CHECK(producer.replaced() == 1);
  }
}

TEST_CASE("per_sample, replace: where there is another sample, one is found", "[per_sample]") {
  // A draw of the sample that failed is none of the three.
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    PinnedPool pool;
    BatchProducer<Numbers> producer(numbers_layout(2),
                                    Sampler{{.samples = 2, .batch_size = 2, .seed = seed}},
                                    per_sample([&](const Sample& sample, Numbers& batch) {
                                      if (sample.index == 1) throw std::runtime_error("no");
                                      write_row(sample, batch);
                                    }),
                                    pool, {.workers = 1, .on_failure = FailurePolicy::replace()});
    const auto batch = producer.next();
    REQUIRE(batch);
    CHECK(batch->ticket().samples[1] == 0);
  }
}

TEST_CASE("per_sample: a batch that does not fit its ragged field fails whole, whatever the policy",
          "[per_sample][ragged]") {
  const auto policy = GENERATE(0, 1) == 0 ? FailurePolicy::skip() : FailurePolicy::replace();
  PinnedPool pool;
  BatchProducer<Texts> producer(
      Layout<Texts>{4}.field(&Texts::tokens, Capacity{10}), sequential(8, 4),
      per_sample([&](const Sample& sample, Texts& batch) {
        batch.tokens.assign(sample.row, std::vector<std::int32_t>(sample.batch == 0 ? 3 : 2));
      }),
      pool, {.workers = 3, .on_failure = policy});
  CHECK_THROWS_AS(producer.next(), SourceError);
  CHECK(producer.next()->ticket().batch == 1);
  CHECK(producer.skipped() + producer.replaced() == 0);
}

TEST_CASE("per_sample: a run resumes at every position", "[per_sample]") {
  const Sampler sampler = shuffled(22, 4);
  const auto all = serial_sample_numbers(sampler, 2);
  TestStream stream;
  for (std::uint64_t at = 0; at <= 12; ++at) {
    Prefetcher<Numbers> first(numbers_layout(4), sampler, per_sample(write_row),
                              {.workers = 2, .epochs = 2});
    std::size_t delivered = 0;
    for (std::uint64_t i = 0; i < at; ++i) delivered += first.next(stream).ticket().samples.size();
    Prefetcher<Numbers> second(numbers_layout(4), sampler, per_sample(write_row),
                               {.workers = 3, .epochs = 2});
    second.restore(first.state());
    CHECK(delivered_numbers(second, 4, 12) ==
          std::vector<std::uint64_t>(all.begin() + static_cast<std::ptrdiff_t>(delivered),
                                     all.end()));
  }
}

TEST_CASE("per_sample: the end does not wait for the rest of a batch", "[per_sample]") {
  std::atomic<int> rows{0};
  {
    Prefetcher<Numbers> prefetcher(
        numbers_layout(1000), sequential(10'000, 1000),
        per_sample([&](const Sample& sample, Numbers& batch, const std::stop_token& stop) {
          write_row(sample, batch);
          ++rows;
          while (!stop.stop_requested()) std::this_thread::yield();
        }),
        {.workers = 3});
    while (rows < 3) std::this_thread::yield();
  }
  CHECK(rows == 3);
}

TEST_CASE("per_sample: a source that throws because it was asked to stop has not failed",
          "[per_sample]") {
  const int action = GENERATE(0, 1, 2);
  const auto policy = action == 0   ? FailurePolicy::abort()
                      : action == 1 ? FailurePolicy::skip()
                                    : FailurePolicy::replace();
  std::atomic<int> inside{0};
  PinnedPool pool;
  BatchProducer<Numbers> producer(
      numbers_layout(4), sequential(40, 4),
      per_sample([&](const Sample& sample, Numbers& batch, const std::stop_token& stop) {
        if (sample.batch < 2 || sample.row < 3) return write_row(sample, batch);
        ++inside;
        while (!stop.stop_requested()) std::this_thread::yield();
        throw std::runtime_error("stopped");
      }),
      pool, {.workers = 1, .on_failure = policy});
  CHECK(producer.next());
  CHECK(eventually([&] { return inside == 1; }));
  producer.stop();
  CHECK(producer.next());
  CHECK_FALSE(producer.next());
  CHECK(producer.failures().empty());
  CHECK(producer.skipped() + producer.replaced() == 0);
}

// ---- per_worker
// ----------------------------------------------------------------------------------

/// Belongs to one thread, from its construction to its end.
class OfOneThread {
 public:
  explicit OfOneThread(std::atomic<int>& alive) : alive_(&alive) { ++*alive_; }
  OfOneThread(OfOneThread&& other) noexcept : alive_(std::exchange(other.alive_, nullptr)) {}
  OfOneThread& operator=(OfOneThread&&) = delete;
  ~OfOneThread() {
    if (alive_ == nullptr) return;
    check();
    --*alive_;
  }
  void check() const {
    if (std::this_thread::get_id() != thread_) std::terminate();
  }

 private:
  std::atomic<int>* alive_;
  std::thread::id thread_ = std::this_thread::get_id();
};

TEST_CASE("per_worker: what is made lives and ends on its worker's thread", "[per_worker]") {
  std::atomic<int> alive{0}, made{0};
  const auto make = [&] {
    ++made;
    return [own = OfOneThread(alive)](const Sample& sample, Numbers& batch) {
      own.check();
      write_row(sample, batch);
    };
  };
  const auto make_state = [&] {
    ++made;
    return OfOneThread(alive);
  };
  AnySource<Numbers> source = per_sample(per_worker(make));
  if (GENERATE(false, true))
    source = per_sample(
        per_worker(make_state, [](OfOneThread& state, const Sample& sample, Numbers& batch) {
          state.check();
          write_row(sample, batch);
        }));
  const Sampler sampler = shuffled(30, 4);
  {
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sampler, source, {.workers = 3});
    CHECK(delivered_numbers(prefetcher, 4, sampler.batches()) == serial_sample_numbers(sampler, 1));
    CHECK(made <= 3);
  }
  CHECK(alive == 0);
}

TEST_CASE("per_worker: a worker that cannot make its source is reported, and the others go on",
          "[per_worker]") {
  std::atomic<int> made{0};
  const auto make = [&] {
    if (made++ < 2) throw std::runtime_error("no decoder");
    return [](const Ticket& ticket, Numbers& batch) { write_numbers(ticket, batch); };
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(40, 4), per_worker(make),
                                 {.workers = 3});
  TestStream stream;
  std::set<int> lost;
  std::vector<std::uint64_t> batches;
  for (bool more = true; more;) {
    try {
      const auto batch = prefetcher.next(stream);
      more = static_cast<bool>(batch);
      if (more) batches.push_back(batch.ticket().batch);
    } catch (const WorkerError& error) {
      lost.insert(error.worker());
      CHECK_THAT(error.what(), Mentions("no decoder"));
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::runtime_error);
    }
  }
  CHECK(lost.size() == 2);
  CHECK(batches == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("per_worker: a worker that has no source is reported also where batches are always ready",
          "[per_worker]") {
  // Mostly the first few tell. On a busy machine the thread without a source may be stopped for
  // milliseconds before it says so.
  constexpr std::uint64_t kBatches = 1'000'000;
  std::atomic<int> made{0};
  const auto make = [&] {
    if (made++ == 0) throw std::runtime_error("no decoder");
    return [](const Ticket& ticket, Numbers& batch) { write_numbers(ticket, batch); };
  };
  std::uint64_t taken = 0;
  const auto is_reported_soon = [&](auto&& ready, auto&& next) {
    for (; taken < kBatches / 2; ++taken) {
      REQUIRE(eventually(ready));
      try {
        next();
      } catch (const WorkerError&) {
        return true;
      }
    }
    return false;
  };
  SECTION("by a producer") {
    PinnedPool pool;
    BatchProducer<Numbers> producer(numbers_layout(4), sequential(4 * kBatches, 4),
                                    per_worker(make), pool, {.workers = 2});
    CHECK(is_reported_soon([&] { return producer.ready(); }, [&] { producer.next(); }));
  }
  SECTION("by a prefetcher") {
    TestStream stream;
    Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4 * kBatches, 4), per_worker(make),
                                   {.workers = 2, .device_depth = 3});
    // The batch behind the next one is being staged.
    CHECK(is_reported_soon([&] { return prefetcher.stats().copy.batches >= taken + 2; },
                           [&] { prefetcher.next(stream); }));
  }
}

TEST_CASE("per_worker: where no worker has a source, every next says so", "[per_worker]") {
  const auto make = []() -> void (*)(const Ticket&, Numbers&) {
    throw std::runtime_error("no decoder");
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(40, 4), per_worker(make),
                                 {.workers = 2});
  TestStream stream;
  for (int i = 0; i < 5; ++i) CHECK_THROWS_AS(prefetcher.next(stream), WorkerError);
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(4), sequential(40, 4), per_worker(make), pool,
                                  {.workers = 2});
  for (int i = 0; i < 5; ++i) CHECK_THROWS_AS(producer.next(), WorkerError);
}

}  // namespace
}  // namespace penstock::test
