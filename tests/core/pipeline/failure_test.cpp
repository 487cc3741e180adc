// SPDX-License-Identifier: Apache-2.0

// What becomes of batches whose source fails, under each policy, and of sources that misbehave in
// any way that the library can see without PENSTOCK_CHECKS.

#include <penstock/batch_producer.hpp>
#include <penstock/failure.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

using penstock::AnySource;
using penstock::BatchProducer;
using penstock::Failure;
using penstock::FailurePolicy;
using penstock::PinnedPool;
using penstock::Prefetcher;
using penstock::PrefetcherOptions;
using penstock::Sampler;
using penstock::SourceError;
using penstock::State;
using penstock::Ticket;
using penstock::Unbounded;
using penstock::test::eventually;
using penstock::test::Mentions;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::NumbersSink;
using penstock::test::TestStream;
using penstock::test::thrown;
using penstock::test::write_numbers;

namespace {

constexpr std::int64_t kBatch = 4;
constexpr std::uint64_t kBatches = 10;  // of an epoch

Sampler shuffled_batches() {
  return Sampler{{.samples = kBatches * kBatch, .batch_size = kBatch, .shuffle = true, .seed = 5}};
}

/// The samples of one batch.
std::vector<std::uint64_t> samples_of(std::uint64_t epoch, std::uint64_t batch) {
  std::vector<std::uint64_t> samples;
  shuffled_batches().samples(epoch, batch, samples);
  return samples;
}

/// Fails wherever one of the `bad` samples is asked for, as an unreadable file does.
auto failing_at(std::set<std::uint64_t> bad) {
  return [bad = std::move(bad)](const Ticket& ticket, Numbers& batch) {
    for (const std::uint64_t sample : ticket.samples)
      if (bad.count(sample) != 0)
        throw std::runtime_error("sample " + std::to_string(sample) + " is bad");
    write_numbers(ticket, batch);
  };
}

struct Delivery {
  std::vector<std::uint64_t> batches;               // numbers over all epochs
  std::vector<std::vector<std::uint64_t>> samples;  // of each, as they arrived on the device
  std::vector<std::uint64_t> thrown;                // numbers of batches that were thrown for
};

Delivery deliver(Prefetcher<Numbers>& prefetcher, std::size_t most) {
  TestStream stream;
  NumbersSink sink(kBatch, most);
  Delivery delivery;
  for (bool more = true; more;) {
    try {
      const auto batch = prefetcher.next(stream);
      more = static_cast<bool>(batch);
      if (!more) break;
      sink.take(batch, stream);
      delivery.batches.push_back(batch.ticket().epoch * kBatches + batch.ticket().batch);
    } catch (const SourceError& error) {
      delivery.thrown.push_back(error.epoch() * kBatches + error.batch());
    }
  }
  sink.wait(stream);
  for (std::size_t i = 0; i < sink.batches(); ++i)
    delivery.samples.push_back(sink.sample_numbers(i));
  return delivery;
}

/// Which batches of `epochs` epochs hold none of the `bad` samples.
std::vector<std::uint64_t> good_batches(const std::set<std::uint64_t>& bad, std::uint64_t epochs) {
  std::vector<std::uint64_t> good;
  for (std::uint64_t number = 0; number < epochs * kBatches; ++number) {
    bool ok = true;
    for (const std::uint64_t sample : samples_of(number / kBatches, number % kBatches))
      ok = ok && bad.count(sample) == 0;
    if (ok) good.push_back(number);
  }
  return good;
}

}  // namespace

TEST_CASE("limits of a policy", "[failure]") {
  CHECK_FALSE(FailurePolicy::abort().tolerates(1, 1));
  CHECK(FailurePolicy::skip(2).tolerates(2, 2));
  CHECK_FALSE(FailurePolicy::skip(2).tolerates(3, 1000));
  const FailurePolicy rate = FailurePolicy::skip(FailurePolicy::unlimited, 0.01);
  CHECK(rate.tolerates(1, 1));  // Rounded up.
  CHECK_FALSE(rate.tolerates(2, 100));
  CHECK(rate.tolerates(2, 101));
  CHECK_FALSE(FailurePolicy::skip(0).tolerates(1, 1000));
  CHECK_THROWS_AS(FailurePolicy::skip(1, 1.5), std::invalid_argument);
  CHECK_THROWS_AS(FailurePolicy::replace(1, std::nan("")), std::invalid_argument);
}

TEST_CASE("a rate is the decimal fraction that was written", "[failure]") {
  // Each of these products is a whole number, and most are not as binary numbers.
  for (std::uint64_t percent = 0; percent <= 100; ++percent)
    for (const std::uint64_t hundreds : {1u, 3u, 7u, 10u, 1'000u, 10'000'000u}) {
      const FailurePolicy policy =
          FailurePolicy::skip(FailurePolicy::unlimited, static_cast<double>(percent) / 100);
      const std::uint64_t most = percent * hundreds, batches = 100 * hundreds;
      if (most > 0) CHECK(policy.tolerates(most, batches));
      CHECK_FALSE(policy.tolerates(most + 1, batches));
      if (percent > 0) CHECK(policy.tolerates(most + 1, batches + 1));
    }
  CHECK_FALSE(FailurePolicy::skip(FailurePolicy::unlimited, 0.07).tolerates(8, 100));
  CHECK(FailurePolicy::skip(FailurePolicy::unlimited, 1.0 / 3).tolerates(1, 3));
  CHECK_FALSE(FailurePolicy::skip(FailurePolicy::unlimited, 1.0 / 3).tolerates(2, 3));
  CHECK_FALSE(FailurePolicy::skip(FailurePolicy::unlimited, 5.0 / 7).tolerates(6, 7));
  CHECK_FALSE(FailurePolicy::skip(FailurePolicy::unlimited, 0.001).tolerates(2, 1000));
  CHECK(FailurePolicy::skip(FailurePolicy::unlimited, 0.001).tolerates(2, 1001));
  CHECK_FALSE(FailurePolicy::skip(FailurePolicy::unlimited, 0).tolerates(1, 1'000'000));
  CHECK(FailurePolicy::skip(FailurePolicy::unlimited, 1e-12).tolerates(1, 1));
  CHECK_FALSE(FailurePolicy::skip(FailurePolicy::unlimited, 1e-12).tolerates(2, 1'000'000'000));
}

TEST_CASE("a policy tells its limits, and those alone that it has", "[failure]") {
  CHECK(FailurePolicy::skip().limits() == "any number");
  CHECK(FailurePolicy::skip(3).limits() == "at most 3");
  CHECK_THAT(FailurePolicy::skip(3, 0.5).limits(), Mentions("at most 3, and a part of 0.5"));
  CHECK(FailurePolicy::skip(3, 1e-7).limits() == "at most 3, and a part of 1e-07");
}

TEST_CASE("a failure shows its samples, the first eight of more", "[failure]") {
  const auto shown = [](std::uint64_t samples) {
    Failure failure{.epoch = 1, .batch = 2, .samples = {}, .what = "bad"};
    for (std::uint64_t i = 0; i < samples; ++i) failure.samples.push_back(10 + i);
    std::ostringstream text;
    text << failure;
    return text.str();
  };
  CHECK(shown(8) == "skipped epoch 1, batch 2: bad (samples 10 11 12 13 14 15 16 17)");
  CHECK(shown(9) == "skipped epoch 1, batch 2: bad (samples 10 11 12 13 14 15 16 17 ... of 9)");
}

TEST_CASE("skip leaves failed batches out, and tells which samples", "[failure]") {
  const int workers = GENERATE(0, 1, 4);
  const std::set<std::uint64_t> bad{3, 17};
  Prefetcher<Numbers> prefetcher(
      numbers_layout(kBatch), shuffled_batches(), failing_at(bad),
      {.workers = workers, .epochs = 3, .on_failure = FailurePolicy::skip()});
  const Delivery delivery = deliver(prefetcher, 3 * kBatches);
  CHECK(delivery.thrown.empty());
  CHECK(delivery.batches == good_batches(bad, 3));
  const std::vector<Failure> failures = prefetcher.failures();
  REQUIRE(failures.size() == 3 * kBatches - delivery.batches.size());
  CHECK(prefetcher.stats().skipped == failures.size());
  for (const Failure& failure : failures) {
    CHECK(failure.samples == samples_of(failure.epoch, failure.batch));
    CHECK_FALSE(failure.replaced);
    std::ostringstream text;
    text << failure;
    CHECK_THAT(text.str(), Mentions("is bad") && Mentions("skipped epoch"));
  }
  CHECK_FALSE(prefetcher.next(nullptr));
}

TEST_CASE("unordered, skip leaves the same batches out", "[failure]") {
  const std::set<std::uint64_t> bad{3, 17};
  Prefetcher<Numbers> prefetcher(
      numbers_layout(kBatch), shuffled_batches(), failing_at(bad),
      {.workers = 3, .epochs = 3, .ordered = false, .on_failure = FailurePolicy::skip()});
  Delivery delivery = deliver(prefetcher, 3 * kBatches);
  std::sort(delivery.batches.begin(), delivery.batches.end());
  CHECK(delivery.batches == good_batches(bad, 3));
}

TEST_CASE("beyond a policy's limit each failure is thrown, in order", "[failure]") {
  const int workers = GENERATE(0, 1, 4);
  // Every batch of odd number fails: of 20, ten.
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch % 2 == 1) throw std::runtime_error("odd");
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(
      numbers_layout(kBatch), shuffled_batches(), source,
      {.workers = workers, .epochs = 2, .on_failure = FailurePolicy::skip(3)});
  const Delivery delivery = deliver(prefetcher, 2 * kBatches);
  CHECK(delivery.batches == std::vector<std::uint64_t>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18});
  CHECK(delivery.thrown == std::vector<std::uint64_t>{7, 9, 11, 13, 15, 17, 19});
  CHECK(prefetcher.failures().size() == 3);
}

TEST_CASE("what is thrown beyond the limit says so, and nests the cause", "[failure]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(
      numbers_layout(kBatch), shuffled_batches(),
      [](const Ticket&, Numbers&) { throw std::range_error("bad image"); }, pool,
      {.workers = 2, .on_failure = FailurePolicy::skip(1)});
  try {
    producer.next();
    FAIL("the second failure is one too many");
  } catch (const SourceError& error) {
    CHECK(error.batch() == 1);
    CHECK_THAT(error.what(), Mentions("bad image") && Mentions("one too many") &&
                                 Mentions("at most 1") && !Mentions("replaced"));
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::range_error);
  }
}

TEST_CASE("a rate is counted over the batches so far", "[failure]") {
  const int workers = GENERATE(0, 3);
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    if (ticket.batch == 1 || ticket.batch == 2 || ticket.batch == 8) throw std::runtime_error("no");
    write_numbers(ticket, batch);
  };
  // One failure in four: the 2nd batch may fail, the 3rd may not, and the 9th may again.
  Prefetcher<Numbers> prefetcher(
      numbers_layout(kBatch), shuffled_batches(), source,
      {.workers = workers, .on_failure = FailurePolicy::skip(FailurePolicy::unlimited, 0.25)});
  const Delivery delivery = deliver(prefetcher, kBatches);
  CHECK(delivery.batches == std::vector<std::uint64_t>{0, 3, 4, 5, 6, 7, 9});
  CHECK(delivery.thrown == std::vector<std::uint64_t>{2});
}

TEST_CASE("replace fills a failed batch with other samples, the same in every run", "[failure]") {
  const std::set<std::uint64_t> bad{3, 17};
  const auto run = [&](int workers, std::size_t depth) {
    Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), shuffled_batches(), failing_at(bad),
                                   {.workers = workers,
                                    .host_depth = depth,
                                    .epochs = 3,
                                    .on_failure = FailurePolicy::replace()});
    Delivery delivery = deliver(prefetcher, 3 * kBatches);
    const auto failures = 3 * kBatches - good_batches(bad, 3).size();
    CHECK(prefetcher.stats().replaced == failures);
    REQUIRE(prefetcher.failures().size() == failures);
    for (const Failure& failure : prefetcher.failures()) {
      CHECK(failure.replaced);
      CHECK(failure.samples == samples_of(failure.epoch, failure.batch));
    }
    return delivery;
  };
  const Delivery first = run(0, 0);
  REQUIRE(first.batches.size() == 3 * kBatches);
  CHECK(first.thrown.empty());
  for (std::size_t i = 0; i < first.batches.size(); ++i) {
    const std::uint64_t epoch = i / kBatches;
    bool of_this_epoch = false;
    for (std::uint64_t b = 0; b < kBatches; ++b)
      of_this_epoch = of_this_epoch || first.samples[i] == samples_of(epoch, b);
    CHECK(of_this_epoch);
    for (const std::uint64_t sample : first.samples[i]) CHECK(bad.count(sample) == 0);
  }
  CHECK(run(1, 1).samples == first.samples);
  CHECK(run(4, 6).samples == first.samples);
}

TEST_CASE("what cannot be replaced is thrown", "[failure]") {
  const int workers = GENERATE(0, 2);
  std::atomic<std::uint64_t> calls{0};
  const auto source = [&](const Ticket&, Numbers&) {
    ++calls;
    throw std::runtime_error("every time");
  };
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(kBatch), shuffled_batches(), source, pool,
                                  {.workers = workers, .on_failure = FailurePolicy::replace()});
  for (std::uint64_t i = 0; i < kBatches; ++i)
    CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
               Mentions("could not be replaced: three other batches failed too") &&
                   !Mentions("one too many"));
  CHECK_FALSE(producer.next());
  CHECK(producer.failures().empty());
  CHECK(calls == (1 + 3) * kBatches);
}

/// Records of an archive: those behind its end are none, and one of them is damaged.
constexpr std::uint64_t kRecords = 400, kDamaged = 40;

bool read_archive(const Ticket& ticket, Numbers& batch) {
  if (ticket.samples[0] >= kRecords) return false;
  if (ticket.samples[0] == kDamaged) throw std::runtime_error("record 40 is damaged");
  if (batch.sample.data_handle() != nullptr) write_numbers(ticket, batch);
  return true;
}

TEST_CASE("a batch that fails does not end data of unknown length", "[failure]") {
  const int workers = GENERATE(0, 3);
  const bool on_device = GENERATE(false, true);
  AnySource<Numbers> source = read_archive;
  if (on_device)
    source = penstock::on_device([](const Ticket& ticket, Numbers& batch, cudaStream_t stream) {
      Numbers none;
      if (!read_archive(ticket, none)) return false;
      cudaMemsetAsync(batch.sample.data_handle(), 0, batch.sample.size() * sizeof(std::uint64_t),
                      stream);
      cudaMemsetAsync(batch.payload.data_handle(), 0, batch.payload.size() * sizeof(std::uint32_t),
                      stream);
      return true;
    });
  const auto policy = GENERATE(0, 1) == 0 ? FailurePolicy::skip(5) : FailurePolicy::replace(5);
  Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), Unbounded::indexed(kBatch), source,
                                 {.workers = workers, .on_failure = policy});
  TestStream stream;
  std::vector<std::uint64_t> batches, thrown_for;
  std::string why;
  for (bool more = true; more;) try {
      const auto batch = prefetcher.next(stream);
      more = static_cast<bool>(batch);
      if (more) batches.push_back(batch.ticket().batch);
    } catch (const SourceError& error) {
      thrown_for.push_back(error.batch());
      why = error.what();
    }
  std::vector<std::uint64_t> expected;
  for (std::uint64_t batch = 0; batch < kRecords / kBatch; ++batch)
    if (batch != kDamaged / kBatch) expected.push_back(batch);
  CHECK(batches == expected);
  if (policy.action() == FailurePolicy::Action::skip) {
    CHECK(thrown_for.empty());
    CHECK(prefetcher.stats().skipped == 1);
    return;
  }
  CHECK(thrown_for == std::vector<std::uint64_t>{kDamaged / kBatch});
  CHECK_THAT(why, Mentions("record 40 is damaged") && Mentions("could not be replaced") &&
                      Mentions("the source has no data for it"));
  CHECK(prefetcher.stats().replaced == 0);
}

TEST_CASE("a stream ends where its source says so, also behind a batch that failed", "[failure]") {
  // The source of a stream reads on when it is called again: the failed batch is replaced by what
  // follows.
  const std::uint64_t good_behind = GENERATE(0u, 1u, 2u);
  int calls = 0;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(kBatch), Unbounded(kBatch),
                                  [&](const Ticket& ticket, Numbers& batch) {
                                    if (++calls == 3) throw std::runtime_error("a broken message");
                                    if (calls > 3 + static_cast<int>(good_behind)) return false;
                                    write_numbers(ticket, batch);
                                    return true;
                                  },
                                  pool, {.workers = 1, .on_failure = FailurePolicy::replace()});
  CHECK(producer.next());
  CHECK(producer.next());
  if (good_behind == 0)
    CHECK_THROWS_AS(producer.next(), SourceError);
  else
    for (std::uint64_t i = 0; i < good_behind; ++i) CHECK(producer.next());
  CHECK_FALSE(producer.next());
}

TEST_CASE("in an epoch that is continued, a failed batch is replaced by one that there is",
          "[failure]") {
  const int workers = GENERATE(0, 2);
  penstock::SamplerOptions options{.samples = 1000, .batch_size = 10, .shuffle = true, .seed = 7};
  State state = Sampler(options).start();
  state.batch = GENERATE(90u, 97u);
  options.world_size = 2;
  options.batch_size = 5;
  const Sampler rest(options, state);
  const auto samples_of_batch = [&](std::uint64_t epoch, std::uint64_t batch) {
    std::vector<std::uint64_t> samples;
    rest.samples(epoch, batch, samples);
    return samples;
  };
  const std::uint64_t first = rest.start().part_batch, end = rest.batches();
  REQUIRE(first > 0);
  for (std::uint64_t number = first; number < end + first; ++number) {  // Some of the next epoch.
    const std::uint64_t epoch = number / end, bad = number % end;
    const auto bad_samples = samples_of_batch(epoch, bad);
    const auto source = [&](const Ticket& ticket, Numbers& batch) {
      if (std::ranges::equal(ticket.samples, bad_samples)) throw std::runtime_error("bad");
      write_numbers(ticket, batch);
    };
    PinnedPool pool;
    BatchProducer<Numbers> producer(
        numbers_layout(5), rest, source, pool,
        {.workers = workers, .epochs = 2, .on_failure = FailurePolicy::replace()});
    if (epoch == 1) producer.seek(epoch, bad);
    std::vector<std::uint64_t> found;
    while (const auto batch = producer.next()) {
      if (batch->ticket().epoch > epoch) break;
      if (batch->ticket().batch != bad) continue;
      found.assign(batch->ticket().samples.begin(), batch->ticket().samples.end());
    }
    REQUIRE(producer.replaced() == 1);
    bool of_the_rest = false;
    for (std::uint64_t other = epoch == 0 ? first : 0; other < end; ++other)
      of_the_rest = of_the_rest || (other != bad && found == samples_of_batch(epoch, other));
    CHECK(of_the_rest);
    if (number > end + 2) break;
  }
}

TEST_CASE("in an epoch of one batch there is nothing to replace it with", "[failure]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(
      numbers_layout(kBatch), Sampler{{.samples = kBatch, .batch_size = kBatch}},
      [](const Ticket&, Numbers&) { throw std::runtime_error("every time"); }, pool,
      {.workers = 1, .on_failure = FailurePolicy::replace()});
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
             Mentions("could not be replaced: the epoch has no other batch"));
  CHECK_FALSE(producer.next());
}

TEST_CASE("replaced batches beyond the limit are thrown for, not delivered", "[failure]") {
  const int workers = GENERATE(0, 3);
  const auto source = [](const Ticket& ticket, Numbers& batch) {
    // The first call for batches 2 and 5 fails: they are asked for their own samples.
    if ((ticket.batch == 2 || ticket.batch == 5) &&
        ticket.samples[0] == samples_of(0, ticket.batch)[0])
      throw std::runtime_error("no");
    write_numbers(ticket, batch);
  };
  Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), shuffled_batches(), source,
                                 {.workers = workers, .on_failure = FailurePolicy::replace(1)});
  const Delivery delivery = deliver(prefetcher, kBatches);
  CHECK(delivery.thrown == std::vector<std::uint64_t>{5});
  CHECK(delivery.batches == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 6, 7, 8, 9});
}

TEST_CASE("a run that skips resumes at every position", "[failure]") {
  const std::set<std::uint64_t> bad{3, 17, 20};
  const std::vector<std::uint64_t> good = good_batches(bad, 2);
  TestStream stream;
  const PrefetcherOptions options{.workers = 2, .epochs = 2, .on_failure = FailurePolicy::skip()};
  for (std::size_t stop = 0; stop <= good.size(); ++stop) {
    State state;
    std::vector<std::uint64_t> all;
    const auto take = [&](Prefetcher<Numbers>& prefetcher) {
      const auto batch = prefetcher.next(stream);
      if (batch) all.push_back(batch.ticket().epoch * kBatches + batch.ticket().batch);
      return static_cast<bool>(batch);
    };
    {
      Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), shuffled_batches(), failing_at(bad),
                                     options);
      for (std::size_t i = 0; i < stop; ++i) take(prefetcher);
      state = prefetcher.state();
    }
    Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), shuffled_batches(), failing_at(bad),
                                   options);
    prefetcher.restore(state);
    while (take(prefetcher)) {
    }
    CHECK(all == good);
  }
}

TEST_CASE("failures can be asked for while they happen", "[failure]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(kBatch), shuffled_batches(),
                                  [](const Ticket&, Numbers&) { throw std::range_error("bad"); },
                                  pool,
                                  {.workers = 1, .epochs = 5, .on_failure = FailurePolicy::skip()});
  std::atomic<bool> done{false};
  std::size_t seen = 0;
  bool shrank = false;
  std::thread asks([&] {
    while (!done) {
      const std::size_t now = producer.failures().size();
      shrank = shrank || now < seen;
      seen = now;
    }
  });
  CHECK_FALSE(producer.next());
  done = true;
  asks.join();
  CHECK_FALSE(shrank);
  CHECK(producer.failures().size() == 5 * shuffled_batches().batches());
}

TEST_CASE("a million failures take no memory beyond the first 256", "[failure]") {
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(1), Sampler{{.samples = 5000, .batch_size = 1}},
                                  [](const Ticket&, Numbers&) { throw std::runtime_error("no"); },
                                  pool, {.workers = 2, .on_failure = FailurePolicy::skip()});
  CHECK_FALSE(producer.next());
  CHECK(producer.failures().size() == 256);
  CHECK(producer.skipped() == 5000);
}

// ---- Sources that misbehave
// -----------------------------------------------------------------------

namespace {

/// A way to misbehave, at some batches.
struct Misbehaviour {
  const char* name;
  void (*act)(const Ticket&, Numbers&);
  const char* told;  // part of the error's text; nullptr: there is none
};

const std::vector<Misbehaviour> misbehaviours{
    {"throws", [](const Ticket&, Numbers&) { throw std::range_error("bad image"); }, "bad image"},
    {"throws something odd", [](const Ticket&, Numbers&) { throw 42; },  // NOLINT
     "no std::exception"},
    {"throws after half the batch",
     [](const Ticket& ticket, Numbers& batch) {
       write_numbers(ticket, batch);
       batch.sample(0) = 0;
       throw std::runtime_error("half");
     },
     "half"},
    {"claims more samples than a batch holds",
     [](const Ticket& ticket, Numbers& batch) {
       write_numbers(ticket, batch);
       batch.sample = penstock::Tensor<std::uint64_t, 1>(batch.sample.data_handle(), kBatch + 1);
     },
     "samples in a batch of at most"},
    {"resizes one field only",
     [](const Ticket& ticket, Numbers& batch) {
       write_numbers(ticket, batch);
       batch.sample = penstock::Tensor<std::uint64_t, 1>(batch.sample.data_handle(), 1);
     },
     "samples"},
    {"points a field elsewhere",
     [](const Ticket& ticket, Numbers& batch) {
       write_numbers(ticket, batch);
       batch.sample = penstock::Tensor<std::uint64_t, 1>(batch.sample.data_handle() + 1,
                                                         batch.sample.extent(0));
     },
     "points elsewhere"},
    {"is slow at random",
     [](const Ticket& ticket, Numbers& batch) {
       std::this_thread::sleep_for(
           std::chrono::microseconds(std::mt19937_64(ticket.seed)() % 3000));
       write_numbers(ticket, batch);
     },
     nullptr},
};

}  // namespace

TEST_CASE("a source that misbehaves at any one batch, or at all, harms no other batch",
          "[failure]") {
  const Misbehaviour misbehaviour = GENERATE(from_range(misbehaviours));
  const int workers = GENERATE(0, 1, 3);
  INFO(misbehaviour.name << ", " << workers << " workers");
  const auto run = [&](std::set<std::uint64_t> when) {
    const auto source = [when, misbehaviour](const Ticket& ticket, Numbers& batch) {
      if (when.count(ticket.batch) != 0)
        misbehaviour.act(ticket, batch);
      else
        write_numbers(ticket, batch);
    };
    Prefetcher<Numbers> prefetcher(numbers_layout(kBatch), shuffled_batches(), source,
                                   {.workers = workers});
    const Delivery delivery = deliver(prefetcher, kBatches);  // Checks every payload.
    if (misbehaviour.told == nullptr) {
      CHECK(delivery.batches.size() == kBatches);
      return;
    }
    CHECK(delivery.thrown == std::vector<std::uint64_t>(when.begin(), when.end()));
    REQUIRE(delivery.batches.size() == kBatches - when.size());
    for (std::size_t i = 0; i < delivery.batches.size(); ++i)
      CHECK(delivery.samples[i] == samples_of(0, delivery.batches[i]));
  };
  std::set<std::uint64_t> all;
  for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
    if (batch % 3 == 0) run({batch});  // The first, the last, two between; then all.
    all.insert(batch);
  }
  run(all);
  if (misbehaviour.told == nullptr) return;
  PinnedPool pool;
  BatchProducer<Numbers> producer(numbers_layout(kBatch), shuffled_batches(), misbehaviour.act,
                                  pool, {.workers = workers});
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }), Mentions(misbehaviour.told));
}

TEST_CASE("a source that takes no stop token holds up destruction until it returns, no longer",
          "[failure]") {
  struct Source {
    std::shared_ptr<int> copies;  // its use count: how many copies of the source there are
    std::atomic<bool>&inside, &release;
    void operator()(const Ticket& ticket, Numbers& batch) const {
      write_numbers(ticket, batch);
      if (ticket.batch != 5) return;
      inside = true;
      while (!release) std::this_thread::yield();
    }
  };
  const auto copies = std::make_shared<int>(0);
  std::atomic<bool> inside{false}, release{false}, gone{false};
  auto prefetcher = std::make_unique<Prefetcher<Numbers>>(
      numbers_layout(kBatch), shuffled_batches(), Source{copies, inside, release},
      // More epochs than it gets to: a worker that comes to the end leaves, and its copy with it.
      PrefetcherOptions{.workers = 2, .host_depth = 6, .device_depth = 2, .epochs = 100});
  const struct LetsGo {  // Also when a check fails: a test that hangs tells nobody why.
    std::atomic<bool>& flag;
    ~LetsGo() { flag = true; }
  } lets_go{release};
  TestStream stream;
  for (int i = 0; i < 3; ++i) CHECK(prefetcher->next(stream));
  REQUIRE(eventually([&] { return inside.load(); }));
  // The test's copy, the producer's and each worker's: the other worker fills the batches behind.
  REQUIRE(eventually([&] { return copies.use_count() == 4; }));
  std::thread destroyer([&] {
    prefetcher.reset();
    gone = true;
  });
  CHECK(eventually([&] { return copies.use_count() == 3; }));  // It is being destroyed,
  CHECK_FALSE(gone);  // and waits: its memory is in the source's hands.
  release = true;
  destroyer.join();
  CHECK(gone);
}
