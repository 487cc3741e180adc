// SPDX-License-Identifier: Apache-2.0

// What PENSTOCK_CHECKS finds. This program is compiled with it.

#include <penstock/batch_producer.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

using penstock::BatchProducer;
using penstock::DeviceArena;
using penstock::DeviceSlot;
using penstock::Layout;
using penstock::PinnedPool;
using penstock::Prefetcher;
using penstock::Ragged;
using penstock::Sampler;
using penstock::SourceError;
using penstock::Tensor;
using penstock::Ticket;
using penstock::test::Mentions;
using penstock::test::TestStream;
using penstock::test::thrown;

namespace {

constexpr std::int64_t kRows = 4;

struct Words {
  Ragged<std::uint16_t> words;
  Tensor<std::int32_t, 1> numbers;
};

struct Pair {
  Tensor<std::uint8_t, 2> bytes;    // sample x 64: ends where a field may begin
  Tensor<std::int32_t, 1> numbers;  // sample
};

Layout<Pair> layout() {
  return Layout<Pair>{kRows}.field(&Pair::bytes, {64}).field(&Pair::numbers, {});
}

void fill_pair(const Ticket& ticket, Pair& batch) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    std::memset(&batch.bytes(row, 0), static_cast<int>(i), 64);
    batch.numbers(row) = static_cast<std::int32_t>(ticket.samples[i]);
  }
}

/// What next() says when `mischief` follows a correct fill.
template <class Mischief>
std::string told(int workers, Mischief mischief) {
  PinnedPool pool;
  const auto source = [&](const Ticket& ticket, Pair& batch) {
    fill_pair(ticket, batch);
    mischief(batch);
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = 6, .batch_size = kRows}}, source, pool,
                               {.workers = workers});
  const std::string first = thrown<SourceError>([&] { producer.next(); });
  CHECK(thrown<SourceError>([&] { producer.next(); }) != "(nothing was thrown)");  // The short one.
  return first;
}

}  // namespace

TEST_CASE("PENSTOCK_CHECKS=1 in the environment turns the checks on, and nothing else does",
          "[checks]") {
  CHECK(penstock::detail::checks_are_wanted("1"));
  CHECK_FALSE(penstock::detail::checks_are_wanted("0"));
  CHECK_FALSE(penstock::detail::checks_are_wanted(""));
  CHECK_FALSE(penstock::detail::checks_are_wanted(nullptr));
}

TEST_CASE("one source compiled with PENSTOCK_CHECKS turns them on in the library", "[checks]") {
  CHECK(penstock::detail::checks());
  CHECK(layout().bytes() > 2 * penstock::detail::field_guard);
}

TEST_CASE("a write beside a field is told, with the place", "[checks]") {
  const int workers = GENERATE(0, 2);
  const auto beside = [&](std::ptrdiff_t from_bytes) {
    return told(workers, [=](Pair& batch) {
      *(reinterpret_cast<std::byte*>(batch.bytes.data_handle()) + from_bytes) = std::byte{1};
    });
  };
  const std::ptrdiff_t end = kRows * 64;
  CHECK_THAT(beside(-1), Mentions("1 bytes before field bytes"));
  CHECK_THAT(beside(end), Mentions("0 bytes behind the end of field bytes"));
  CHECK_THAT(beside(end + 255), Mentions("255 bytes behind the end of field bytes"));
  CHECK_THAT(told(workers, [](Pair& batch) { batch.numbers.data_handle()[kRows] = 7; }),
             Mentions("behind the end of field numbers"));
}

TEST_CASE("a field that was not written is told", "[checks]") {
  const int workers = GENERATE(0, 2);
  PinnedPool pool;
  const auto source = [](const Ticket& ticket, Pair& batch) {
    if (ticket.batch == 0) std::memset(batch.bytes.data_handle(), 0, kRows * 64);
    if (ticket.batch == 1) fill_pair(ticket, batch);
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = 12, .batch_size = kRows}}, source,
                               pool, {.workers = workers});
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
             Mentions("left field numbers unwritten"));
  CHECK(producer.next());
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }), Mentions("left field bytes unwritten"));
}

TEST_CASE("8 bytes that were not written are told, 4 may be so by chance", "[checks]") {
  const std::uint64_t samples = GENERATE(1u, 2u);  // of the one batch
  PinnedPool pool;
  const auto source = [](const Ticket& ticket, Pair& batch) {
    std::memset(batch.bytes.data_handle(), 0, ticket.samples.size() * 64);
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = samples, .batch_size = kRows}}, source,
                               pool, {.workers = 1});
  if (samples == 2)
    CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
               Mentions("left field numbers unwritten"));
  else
    CHECK(producer.next());
}

TEST_CASE("a row that was left out is told, by field and row", "[checks]") {
  PinnedPool pool;
  struct Wide {
    Tensor<double, 2> values;  // sample x 5
  };
  const std::int64_t left_out = GENERATE(0, 2, kRows - 1);
  const auto source = [=](const Ticket&, Wide& batch) {
    for (std::int64_t row = 0; row < kRows; ++row)
      if (row != left_out) std::memset(&batch.values(row, 0), 1, 5 * sizeof(double));
  };
  const auto layout = Layout<Wide>{kRows}.field(&Wide::values, {5});
  BatchProducer<Wide> producer(layout, Sampler{{.samples = kRows, .batch_size = kRows}}, source,
                               pool, {.workers = 1});
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
             Mentions("left row " + std::to_string(left_out) + " of field values unwritten"));
}

TEST_CASE("workers check the rows of their batches at the same time", "[checks]") {
  PinnedPool pool;
  std::atomic<int> filled{0};
  const auto in_pairs = [&](const Ticket& ticket, Pair& batch) {
    fill_pair(ticket, batch);
    const int mine = filled.fetch_add(1, std::memory_order_relaxed);
    while (filled.load(std::memory_order_relaxed) < (mine | 1)) std::this_thread::yield();
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = 400, .batch_size = kRows}}, in_pairs,
                               pool, {.workers = 2, .depth = 8});
  std::uint64_t batches = 0;
  while (producer.next()) ++batches;
  CHECK(batches == 100);
}

TEST_CASE("adjacent rows of 8 bytes that were left out are told together", "[checks]") {
  PinnedPool pool;
  struct Narrow {
    Tensor<double, 1> values;
  };
  const auto source = [](const Ticket&, Narrow& batch) { batch.values(0) = batch.values(3) = 1; };
  const auto layout = Layout<Narrow>{kRows}.field(&Narrow::values, {});
  BatchProducer<Narrow> producer(layout, Sampler{{.samples = kRows, .batch_size = kRows}}, source,
                                 pool, {.workers = 1});
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
             Mentions("left rows 1 to 2 of field values unwritten"));
}

// A row of 4 bytes may look unwritten by chance, once; one of 1 byte 7 times in turn.
TEMPLATE_TEST_CASE("a short row that is left out of batch after batch is told", "[checks]",
                   std::int8_t, std::int16_t, std::int32_t) {
  struct Labels {
    Tensor<TestType, 1> label;
  };
  constexpr std::uint64_t kBatches = 8;
  const int workers = GENERATE(0, 1);
  PinnedPool pool;
  const auto source = [](const Ticket&, Labels& batch) {
    for (std::int64_t row = 0; row + 1 < kRows; ++row) batch.label(row) = 1;
  };
  const auto layout = Layout<Labels>{kRows}.field(&Labels::label, {});
  BatchProducer<Labels> producer(layout,
                                 Sampler{{.samples = kBatches * kRows, .batch_size = kRows}},
                                 source, pool, {.workers = workers});
  for (std::size_t i = sizeof(TestType); i < kBatches; i += sizeof(TestType))
    CHECK(producer.next());
  CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
             Mentions("left row 3 of field label unwritten"));
}

TEST_CASE("what is random is not taken for unwritten", "[checks]") {
  struct Bytes {
    Tensor<std::uint8_t, 1> values;
  };
  PinnedPool pool;
  std::uint64_t state = 1;
  const auto source = [&](const Ticket& ticket, Bytes& batch) {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      batch.values(static_cast<std::int64_t>(i)) =
          static_cast<std::uint8_t>((state = state * 6364136223846793005u + 1) >> 56);
  };
  const auto layout = Layout<Bytes>{1000}.field(&Bytes::values, {});
  BatchProducer<Bytes> producer(layout, Sampler{{.samples = 400'000, .batch_size = 1000}}, source,
                                pool, {.workers = 1});
  int batches = 0;
  while (producer.next()) ++batches;
  CHECK(batches == 400);
}

TEST_CASE("a row behind those of the batch is told, and one that was given up is not", "[checks]") {
  const std::int64_t resized_to = GENERATE(-1, 1, 3);  // -1: not
  PinnedPool pool;
  const auto source = [=](const Ticket& ticket, Pair& batch) {
    fill_pair(ticket, batch);
    batch.numbers.data_handle()[2] = 7;
    if (resized_to == 3) std::memset(batch.bytes.data_handle() + 2 * 64, 1, 64);
    if (resized_to >= 0) layout().resize(batch, resized_to);
  };
  BatchProducer<Pair> producer(layout(), Sampler{{.samples = 2, .batch_size = kRows}}, source, pool,
                               {.workers = 1});
  if (resized_to == 3)
    CHECK(producer.next());
  else
    CHECK_THAT(thrown<SourceError>([&] { producer.next(); }),
               Mentions("wrote row 2 of field numbers in a batch of"));

  // All that it was asked for, and then less.
  const auto fewer = [](const Ticket& ticket, Pair& batch) {
    fill_pair(ticket, batch);
    layout().resize(batch, 1);
  };
  BatchProducer<Pair> short_batches(layout(), Sampler{{.samples = 2, .batch_size = kRows}}, fewer,
                                    pool, {.workers = 1});
  CHECK(short_batches.next()->samples() == 1);
}

TEST_CASE("a tensor that is no field is told before a source writes through it", "[checks]") {
  const auto one = Layout<Pair>{kRows}.field(&Pair::bytes, {64});
  const Sampler sampler{{.samples = 4, .batch_size = kRows}};
  CHECK_THAT(thrown<std::invalid_argument>(
                 [&] { Prefetcher<Pair>(one, sampler, fill_pair, {.workers = 1}); }),
             Mentions("numbers is a Tensor or a Ragged, and no field"));
  const penstock::DeviceTransform<Pair, Pair> transform{
      one, [](const Ticket&, const Pair&, Pair&, cudaStream_t) {}};
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               Prefetcher<Pair>(layout(), sampler, fill_pair, transform, {.workers = 1});
             }),
             Mentions("numbers is a Tensor or a Ragged, and no field"));
}

struct Texts {
  Ragged<std::int32_t> tokens;
};

/// What next() says when `fill` has filled a batch of 3 of 4 rows, with room for 40 values.
template <class Fill>
std::string told_of_texts(Fill fill) {
  PinnedPool pool;
  const auto source = [&](const Ticket&, Texts& batch) { fill(batch.tokens); };
  const auto texts = Layout<Texts>{kRows}.field(&Texts::tokens, penstock::Capacity{40});
  BatchProducer<Texts> producer(texts, Sampler{{.samples = 3, .batch_size = kRows}}, source, pool,
                                {.workers = 1});
  return thrown<SourceError>([&] { producer.next(); });
}

TEST_CASE("what is wrong with a ragged field is told", "[checks][ragged]") {
  const std::vector<std::int32_t> few{1, 2, 3};
  using Tokens = const Ragged<std::int32_t>&;
  const auto assign_all = [&](Tokens tokens) {
    for (std::int64_t row = 2; row >= 0; --row) tokens.assign(row, few);
  };
  CHECK(told_of_texts(assign_all) == "(nothing was thrown)");
  CHECK_THAT(told_of_texts([&](Tokens tokens) { tokens.assign(0, few), tokens.assign(2, {}); }),
             Mentions("did not assign row 1 of field tokens"));
  CHECK_THAT(told_of_texts([&](Tokens tokens) {
               assign_all(tokens);
               tokens.data()[9] = 1;
             }),
             Mentions("wrote behind the 9 values that it assigned to field tokens"));
  CHECK_THAT(told_of_texts([&](Tokens tokens) {
               assign_all(tokens);
               tokens.data()[40] = 1;
             }),
             Mentions("0 bytes behind the end of field tokens"));
  CHECK_THAT(told_of_texts([&](Tokens tokens) {
               assign_all(tokens);
               tokens.offsets()[1] = 3;
             }),
             Mentions("wrote the offsets of field tokens"));
  for (const std::int64_t values : {2, 3})  // of 8 bytes and more
    CHECK_THAT(told_of_texts([&](Tokens tokens) {
                 tokens.assign(0, few), tokens.assign(1, few);
                 tokens.allocate(2, values);
               }),
               Mentions("left row 2 of field tokens unwritten"));
}

TEST_CASE("a row that is skipped need not be written, and one that is left out beside it is told",
          "[checks][ragged]") {
  struct Both {
    Tensor<double, 2> values;  // sample x 2
    Ragged<std::int32_t> tokens;
  };
  // Rows 1 and 2 are skipped. These are left out, of one of the fields:
  const std::int64_t no_values = GENERATE(-1, 0, 3),
                     no_tokens = no_values < 0 ? GENERATE(-1, 0, 3) : -1;
  const auto source = penstock::per_sample([=](const penstock::Sample& sample, Both& batch) {
    if (sample.row == 1 || sample.row == 2) throw std::runtime_error("bad");
    if (sample.row != no_values) batch.values(sample.row, 0) = batch.values(sample.row, 1) = 1;
    if (sample.row != no_tokens) batch.tokens.assign(sample.row, std::vector<std::int32_t>{1, 2});
  });
  const auto both =
      Layout<Both>{kRows}.field(&Both::values, {2}).field(&Both::tokens, penstock::Capacity{40});
  Prefetcher<Both> prefetcher(both, Sampler{{.samples = kRows, .batch_size = kRows}}, source,
                              {.workers = 1, .on_failure = penstock::FailurePolicy::skip()});
  const TestStream stream;
  const auto batch = prefetcher.next(stream);  // A batch with such a finding is skipped.
  const auto failures = prefetcher.failures();
  if (no_values >= 0)
    CHECK_THAT(failures.back().what,
               Mentions("left row " + std::to_string(no_values) + " of field values unwritten"));
  else if (no_tokens >= 0)
    CHECK_THAT(failures.back().what,
               Mentions("did not assign row " + std::to_string(no_tokens) + " of field tokens"));
  else
    CHECK((failures.size() == 2 && batch && batch->values.extent(0) == 2));
}

/// What next() says of a batch of `samples` samples that `fill`, queued on the source's stream,
/// makes in a device slot.
template <class Batch, class Fill>
std::string told_of_slot(const Layout<Batch>& layout, std::uint64_t samples, Fill fill) {
  TestStream stream;
  const auto source = penstock::on_device([fill](const Ticket&, Batch& batch, cudaStream_t on) {
    penstock::for_each(on, 1, [=](auto) { fill(batch); });
  });
  Prefetcher<Batch> prefetcher(layout, Sampler{{.samples = samples, .batch_size = kRows}}, source,
                               {.workers = 1});
  return thrown<SourceError>([&] { prefetcher.next(stream); });
}

TEST_CASE("what a source writes beside its fields in a device slot is told",
          "[checks][on_device]") {
  const auto told_after = [](std::int64_t rows, auto mischief) {
    return told_of_slot(layout(), 3, [=](const Pair& batch) {
      std::memset(batch.bytes.data_handle(), 1, static_cast<std::size_t>(rows) * 64);
      std::memset(batch.numbers.data_handle(), 1, static_cast<std::size_t>(rows) * 4);
      mischief(batch);
    });
  };
  const auto nothing = [](const Pair&) {};
  CHECK(told_after(3, nothing) == "(nothing was thrown)");
  CHECK(told_after(4, nothing) == "(nothing was thrown)");  // Rows behind the batch cost nothing.
  CHECK_THAT(told_after(5, nothing), Mentions("0 bytes behind the end of field bytes"));
  CHECK_THAT(told_after(3, [](const Pair& batch) { *(&batch.bytes(0, 0) - 1) = 1; }),
             Mentions("1 bytes before field bytes"));
  CHECK_THAT(told_after(2, nothing), Mentions("left row 2 of field bytes unwritten"));
  CHECK_THAT(told_after(0, nothing), Mentions("left field bytes unwritten"));
}

TEST_CASE("what is wrong with a ragged field in a device slot is told", "[checks][on_device]") {
  const auto texts = Layout<Texts>{kRows}.field(&Texts::tokens, penstock::Capacity{8});
  const auto told_of = [&](std::vector<std::int64_t> offsets, std::size_t values) {
    return told_of_slot(texts, 2, [=](const Texts& batch) {
      std::copy(offsets.begin(), offsets.end(), batch.tokens.offsets());
      std::memset(batch.tokens.data(), 0, values * sizeof(std::int32_t));
    });
  };
  CHECK(told_of({0, 3, 8}, 8) == "(nothing was thrown)");
  CHECK(told_of({0, 0, 0}, 0) == "(nothing was thrown)");
  CHECK_THAT(told_of({0, 3}, 8), Mentions("left offset 2 of field tokens unwritten"));
  CHECK_THAT(told_of({0, 3, 2}, 8), Mentions("wrote 2 as offset 2 of field tokens, behind 3"));
  CHECK_THAT(told_of({0, 3, 9}, 8), Mentions("a capacity of 8"));
  CHECK_THAT(told_of({-1, 3, 8}, 8), Mentions("wrote -1 as offset 0"));
  CHECK_THAT(told_of({0, 3, 8}, 3), Mentions("left row 1 of field tokens unwritten"));
  CHECK_THAT(told_of({0, 6, 8}, 6), Mentions("left row 1 of field tokens unwritten"));  // 8 bytes
  CHECK_THAT(told_of({0, 3, 8}, 9), Mentions("0 bytes behind the end of field tokens"));
}

TEST_CASE("checks: a row that failed and was replaced is the replacement's alone", "[checks]") {
  const bool forgets = GENERATE(false, true);  // one of the replacement's fields
  const auto words =
      Layout<Words>{kRows}.field(&Words::words, penstock::Capacity{64}).field(&Words::numbers, {});
  PinnedPool pool;
  const auto fill = [&](const penstock::Sample& sample, Words& batch) {
    const std::vector<std::uint16_t> values(sample.index == 7 ? 9 : 5, 3);
    batch.words.assign(sample.row, values);
    if (sample.index == 7 || !forgets || sample.row != 3)
      batch.numbers(sample.row) = static_cast<std::int32_t>(sample.index);
    if (sample.index == 7) throw std::runtime_error("damaged, as it turns out");
  };
  const Sampler sampler{{.samples = 8, .batch_size = kRows}};
  BatchProducer<Words> producer(words, sampler, penstock::per_sample(fill), pool,
                                {.workers = 1, .on_failure = penstock::FailurePolicy::replace(1)});
  if (forgets) {  // 4 bytes may match by chance, twice they do not.
    CHECK_THROWS_AS(
        [&] {
          while (producer.next()) {
          }
        }(),
        SourceError);
    return;
  }
  CHECK(producer.next());
  CHECK(producer.next());
  CHECK(producer.replaced() == 1);
}

TEST_CASE("a lease that is used after its release reads poison", "[checks]") {
  TestStream stream, other;
  Prefetcher<Pair> prefetcher(layout(), Sampler{{.samples = 4, .batch_size = kRows}}, fill_pair,
                              {.workers = 1, .device_depth = 1});
  auto lease = prefetcher.next(stream);
  const Pair batch = *lease;
  lease.also_used_on(other);
  std::int32_t before = 0, after = 0;
  const auto read_into = [&](std::int32_t& value, cudaStream_t on) {
    REQUIRE_CUDA(cudaMemcpyAsync(&value, batch.numbers.data_handle() + 1, sizeof(value),
                                 cudaMemcpyDeviceToHost, on));
  };
  read_into(before, other);
  lease.release();
  read_into(after, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(other));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(before == 1);
  std::int32_t poison = 0;
  std::memset(&poison, penstock::detail::poison, sizeof(poison));
  CHECK(after == poison);
}
