// SPDX-License-Identifier: Apache-2.0

// Ragged fields: on their own, and through a producer and a prefetcher. Runs emulated, and on a
// GPU.

#include <penstock/detail/memory/checks.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/ragged.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace penstock::ragged_test {
namespace {

using namespace test;

struct Texts {
  Tensor<std::uint64_t, 1> sample;
  Ragged<std::int32_t> tokens;
  Ragged<char> name;
};
static_assert(std::is_trivially_copyable_v<Texts>);

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kMost = 9;  // tokens of a sample

/// 0 to kMost tokens, hashes of sample and place.
std::vector<std::int32_t> tokens_of(std::uint64_t sample) {
  std::vector<std::int32_t> tokens((sample * 7 + 3) % (kMost + 1));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(payload_of(sample, static_cast<std::int64_t>(i)));
  return tokens;
}
std::string name_of(std::uint64_t sample) {
  return "sample " + std::to_string(sample);
}

Layout<Texts> texts_layout(std::int64_t rows = kRows) {
  return Layout<Texts>{rows}
      .field(&Texts::sample, {})
      .field(&Texts::tokens, Capacity{rows * kMost})
      .field(&Texts::name, Capacity{rows * 12});
}

void assign_row(const Texts& batch, std::int64_t row, std::uint64_t sample) {
  batch.sample(row) = sample;
  batch.tokens.assign(row, tokens_of(sample));
  batch.name.assign(row, name_of(sample));
}

/// A batch that a source may fill, in memory of its own.
struct Filling {
  explicit Filling(const Layout<Texts>& layout, std::int64_t samples)
      : core(layout.erased()), block(core.bytes()), scratch(core.scratch_bytes()) {
    core.bind_for_source(&batch, block.data(), scratch.data(), samples);
  }
  std::int64_t finish(const std::vector<std::int64_t>& dropped = {}) {
    return core.finish(&batch, block.data(), dropped, spare);
  }

  const detail::BlockLayout core;
  std::vector<std::byte> block, scratch, spare;
  Texts batch;
};

void check_rows(const Texts& batch, const std::vector<std::uint64_t>& samples) {
  REQUIRE(batch.tokens.size() == static_cast<std::int64_t>(samples.size()));
  std::int64_t total = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const auto tokens = batch.tokens.values(row);
    const auto name = batch.name.values(row);
    CHECK(batch.sample(row) == samples[i]);
    CHECK(std::vector<std::int32_t>(tokens.begin(), tokens.end()) == tokens_of(samples[i]));
    CHECK(std::string(name.begin(), name.end()) == name_of(samples[i]));
    CHECK(batch.tokens.offsets()[row] == total);
    CHECK(batch.tokens.begin(row) == batch.tokens.data() + total);
    total += batch.tokens.length(row);
  }
  CHECK(batch.tokens.offsets()[samples.size()] == total);
  CHECK(batch.tokens.total() == total);
}

TEST_CASE("ragged: rows lie in row order, in whatever order they were assigned", "[ragged]") {
  std::vector<std::int64_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  do {
    Filling filling(texts_layout(), kRows);
    for (const std::int64_t row : order)
      assign_row(filling.batch, row, static_cast<std::uint64_t>(10 + row));
    CHECK(filling.finish() == kRows);
    check_rows(filling.batch, {10, 11, 12, 13});
    // Nothing is moved when they came in order.
    CHECK(filling.spare.empty() == std::is_sorted(order.begin(), order.end()));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("ragged: a source reads what it has assigned", "[ragged]") {
  Filling filling(texts_layout(), kRows);
  const Texts& batch = filling.batch;
  CHECK(batch.tokens.total() == 0);
  batch.tokens.assign(2, std::vector<std::int32_t>{1, 2, 3});
  batch.tokens.allocate(0, 2)[1] = 7;
  CHECK(batch.tokens.values(2)[1] == 2);
  CHECK(batch.tokens.values(0)[1] == 7);
  CHECK(batch.tokens.length(1) == 0);
  CHECK(batch.tokens.total() == 5);
  CHECK(batch.tokens.capacity() == kRows * kMost);
}

TEST_CASE("ragged: rows that are never assigned are empty", "[ragged]") {
  Filling filling(texts_layout(), 3);
  filling.batch.tokens.assign(1, std::vector<std::int32_t>{5});
  filling.finish();
  CHECK(filling.batch.tokens.total() == 1);
  CHECK(filling.batch.tokens.values(0).empty());
  CHECK(filling.batch.tokens.values(1)[0] == 5);
  CHECK(filling.batch.tokens.values(2).empty());
  CHECK(filling.batch.name.total() == 0);
}

TEST_CASE("ragged: threads assign rows of one batch at the same time", "[ragged]") {
  constexpr std::int64_t kMany = 64, kThreads = 4;
  std::vector<std::uint64_t> samples(kMany);
  std::iota(samples.begin(), samples.end(), 100u);
  for (int round = 0; round < 20; ++round) {
    Filling filling(texts_layout(kMany), kMany);
    std::vector<std::thread> threads;
    for (std::int64_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (std::int64_t row = thread; row < kMany; row += kThreads)
          assign_row(filling.batch, row, samples[static_cast<std::size_t>(row)]);
      });
    for (std::thread& thread : threads) thread.join();
    filling.finish();
    check_rows(filling.batch, samples);
  }
}

TEST_CASE("ragged: rows are dropped from every field", "[ragged]") {
  const bool backwards = GENERATE(false, true);
  const auto dropped = GENERATE(
      values<std::vector<std::int64_t>>({{0}, {3}, {5}, {1, 2}, {0, 2, 4}, {0, 1, 2, 3, 4, 5}}));
  const bool assigned = GENERATE(false, true);  // those that are dropped
  Filling filling(texts_layout(6), 6);
  std::vector<std::uint64_t> kept;
  for (std::int64_t i = 0; i < 6; ++i) {
    const std::int64_t row = backwards ? 5 - i : i;
    const bool is_dropped = std::find(dropped.begin(), dropped.end(), row) != dropped.end();
    if (assigned || !is_dropped) assign_row(filling.batch, row, static_cast<std::uint64_t>(row));
  }
  for (std::int64_t row = 0; row < 6; ++row)
    if (std::find(dropped.begin(), dropped.end(), row) == dropped.end())
      kept.push_back(static_cast<std::uint64_t>(row));
  CHECK(filling.finish(dropped) == static_cast<std::int64_t>(kept.size()));
  check_rows(filling.batch, kept);
}

TEST_CASE("ragged: a row that is cleared may be assigned again", "[ragged]") {
  Filling filling(texts_layout(), kRows);
  const std::int64_t again = GENERATE(0, 3);  // one that has a neighbour behind it, and the last
  for (std::int64_t row = 0; row < kRows; ++row)
    assign_row(filling.batch, row, static_cast<std::uint64_t>(row));
  const std::int64_t before = filling.batch.tokens.total();
  filling.core.clear_row(&filling.batch, again);
  CHECK(filling.batch.tokens.total() < before);
  CHECK(filling.batch.tokens.length(again) == 0);
  assign_row(filling.batch, again, 51);
  filling.finish();
  std::vector<std::uint64_t> samples{0, 1, 2, 3};
  samples[static_cast<std::size_t>(again)] = 51;
  check_rows(filling.batch, samples);
}

TEST_CASE("ragged: what does not fit, and what makes no sense, is told with the numbers",
          "[ragged]") {
  Filling filling(texts_layout(), 3);
  const auto& tokens = filling.batch.tokens;
  const std::vector<std::int32_t> most(kRows * kMost - 1, 8);
  tokens.assign(0, most);
  const std::vector<std::byte> before = filling.block;
  CHECK_THAT(thrown<std::length_error>([&] {
               tokens.assign(1, std::vector<std::int32_t>{1, 2});
             }),
             Mentions("row 1 of field tokens has 2 values") && Mentions("have 35") &&
                 Mentions("room for 36"));
  CHECK(filling.block == before);
  tokens.assign(1, std::vector<std::int32_t>{1});  // One does.
  CHECK_THAT(thrown<std::logic_error>([&] { tokens.assign(1, {}); }),
             Mentions("row 1 of field tokens was assigned before"));
  CHECK_THAT(thrown<std::out_of_range>([&] { tokens.assign(3, {}); }),
             Mentions("row 3 of field tokens, in a batch of 3 rows"));
  CHECK_THAT(thrown<std::out_of_range>([&] { tokens.assign(-1, {}); }), Mentions("row -1"));
  CHECK_THAT(thrown<std::length_error>([&] { tokens.allocate(2, -1); }), Mentions("-1 values"));
  tokens.assign(2, {});
  filling.finish();
  CHECK_THAT(thrown<std::logic_error>([&] { tokens.assign(0, {}); }),
             Mentions("no source is filling this batch"));
  const auto bound = texts_layout().bind(filling.block.data(), 3);
  CHECK_THAT(thrown<std::logic_error>([&] { bound.tokens.assign(0, {}); }),
             Mentions("no source is filling this batch"));
  CHECK_THAT(
      thrown<std::invalid_argument>([] { Layout<Texts>{1}.field(&Texts::tokens, Capacity{-2}); }),
      Mentions("field tokens has a negative capacity -2"));
}

TEST_CASE("ragged: a layout says what a source has done to its batch", "[ragged]") {
  Filling filling(texts_layout(), 3);
  const auto samples = [&] { filling.core.samples(&filling.batch, filling.block.data()); };
  SECTION("replaced a Ragged") {
    filling.batch.tokens = {};
    CHECK_THAT(thrown<std::invalid_argument>(samples), Mentions("field tokens points elsewhere"));
  }
  SECTION("took that of another batch") {
    Filling other(texts_layout(), 3);
    filling.batch.tokens = other.batch.tokens;
    CHECK_THAT(thrown<std::invalid_argument>(samples), Mentions("field tokens points elsewhere"));
  }
  SECTION("said a total that there is no room for") {
    filling.batch.tokens.set_total(kRows * kMost + 1);
    CHECK_THAT(thrown<std::invalid_argument>(samples),
               Mentions("field tokens has 37 values in all, and a batch has room for 36"));
  }
  SECTION("resized it") {
    texts_layout().resize(filling.batch, 2);
    CHECK(filling.batch.tokens.size() == 2);
    CHECK(filling.finish() == 2);
  }
}

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;
Ranges ranges(const Filling& filling, std::int64_t samples) {
  Ranges result;
  filling.core.for_each_range(&filling.batch, samples, [&](std::size_t offset, std::size_t bytes) {
    result.emplace_back(offset, bytes);
  });
  return result;
}

TEST_CASE("ragged: only what is used is copied", "[ragged]") {
  if (detail::checks()) return;                  // They move the fields apart.
  const std::size_t tokens = 512, names = 1024;  // where the values lie
  Filling full(texts_layout(), kRows);
  full.batch.tokens.assign(0, std::vector<std::int32_t>{1, 2, 3});
  full.batch.name.assign(3, std::string("a name"));
  full.finish();
  CHECK(ranges(full, kRows) == Ranges{{0, tokens + 12}, {768, names - 768 + 6}});

  Filling all(texts_layout(), kRows);
  all.batch.tokens.assign(0, std::vector<std::int32_t>(kRows * kMost));
  all.batch.name.assign(3, std::string(kRows * 12, 'x'));
  all.finish();
  CHECK(ranges(all, kRows) == Ranges{{0, all.core.bytes()}});

  Filling one(texts_layout(), 1);
  one.batch.tokens.assign(0, std::vector<std::int32_t>{1, 2, 3});
  one.finish();
  CHECK(ranges(one, 1) == Ranges{{0, 8}, {256, 16}, {tokens, 12}, {768, 16}});

  CHECK_THAT(thrown<std::logic_error>(
                 [] { texts_layout().for_each_range(kRows, [](std::size_t, std::size_t) {}); }),
             Mentions("ragged field tokens"));
}

TEST_CASE("ragged: rebind keeps the total, bind says the capacity", "[ragged]") {
  Filling filling(texts_layout(), 2);
  assign_row(filling.batch, 0, 1);
  filling.finish();
  const std::int64_t total = filling.batch.tokens.total();
  const auto layout = texts_layout();
  auto* device = reinterpret_cast<std::byte*>(std::uintptr_t{0x7000'0000'0000});
  Texts batch = filling.batch;
  layout.rebind(batch, device, 2);
  CHECK(batch.tokens.total() == total);
  CHECK(batch.tokens.size() == 2);
  CHECK(reinterpret_cast<std::byte*>(batch.tokens.offsets()) ==
        device + layout.erased().fields()[1].offset);
  CHECK(layout.bind(device, 2).tokens.total() == kRows * kMost);
}

// ---- Through the pipeline -----------------------------------------------------------------------

/// Assigns the rows of a batch, from the last to the first where the batch is odd.
void write_texts(const Ticket& ticket, Texts& batch) {
  const auto rows = static_cast<std::int64_t>(ticket.samples.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = ticket.batch % 2 == 0 ? i : rows - 1 - i;
    assign_row(batch, row, ticket.samples[static_cast<std::size_t>(row)]);
  }
}

/// A batch copied back from the device, whole.
struct Copy {
  Copy(const Layout<Texts>& texts, const Texts& batch, cudaStream_t stream)
      : layout(texts), memory(layout.bytes()), host(batch) {
    const auto* device = reinterpret_cast<const std::byte*>(batch.sample.data_handle()) -
                         layout.erased().fields()[0].offset;
    REQUIRE_CUDA(
        cudaMemcpyAsync(memory.data(), device, layout.bytes(), cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    layout.rebind(host, memory.data(), batch.tokens.size());
  }
  Layout<Texts> layout;
  PinnedMemory<std::byte> memory;
  Texts host;
};

TEST_CASE("ragged: every batch arrives whole, the short one too", "[ragged]") {
  const int workers = GENERATE(0, 1, 3);
  const TestStream stream;
  const Sampler sampler = shuffled(50, kRows);
  Prefetcher<Texts> prefetcher(texts_layout(), sampler, write_texts,
                               {.workers = workers, .epochs = 2});
  std::vector<std::uint64_t> all;
  while (auto batch = prefetcher.next(stream)) {
    const auto& samples = batch.ticket().samples;
    const Copy copy(texts_layout(), *batch, stream);
    check_rows(copy.host, {samples.begin(), samples.end()});
    all.insert(all.end(), samples.begin(), samples.end());
  }
  CHECK(all == serial_sample_numbers(sampler, 2));
}

TEST_CASE("ragged: the bytes of a batch are those that it uses", "[ragged]") {
  if (detail::checks()) return;  // They move the fields apart.
  const TestStream stream;
  Prefetcher<Texts> prefetcher(texts_layout(), sequential(3, kRows), write_texts, {.workers = 1});
  std::size_t used = 3 * 8 + 2 * (3 + 1) * 8;
  for (std::uint64_t sample = 0; sample < 3; ++sample)
    used += tokens_of(sample).size() * 4 + name_of(sample).size();
  while (prefetcher.next(stream)) {
  }
  CHECK(prefetcher.stats().copy.bytes == used);
  CHECK(prefetcher.stats().source.bytes == used);
}

TEST_CASE("ragged: a batch that does not fit is an error at its place", "[ragged]") {
  const TestStream stream;
  const auto source = [](const Ticket& ticket, Texts& batch) {
    if (ticket.batch == 1) batch.tokens.assign(0, std::vector<std::int32_t>(kRows * kMost + 1));
    if (ticket.batch != 1) write_texts(ticket, batch);
  };
  Prefetcher<Texts> prefetcher(texts_layout(), sequential(12, kRows), source, {.workers = 2});
  CHECK(prefetcher.next(stream));
  CHECK_THAT(thrown<SourceError>([&] { prefetcher.next(stream); }),
             Mentions("batch 1") && Mentions("37 values") && Mentions("room for 36"));
  CHECK(prefetcher.next(stream));
  CHECK_FALSE(prefetcher.next(stream));
}

TEST_CASE("ragged: a transform gets a ragged batch, and may make one", "[ragged]") {
  const TestStream stream;
  const auto copy = [](const auto& from, auto* to, std::int64_t number, cudaStream_t copies) {
    detail::check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(number) * sizeof(*to),
                                  cudaMemcpyDeviceToDevice, copies),
                  "cudaMemcpyAsync");
  };
  const auto transform = [&](const Ticket&, const Texts& in, Texts& out, cudaStream_t copies) {
    copy(in.sample.data_handle(), out.sample.data_handle(), in.tokens.size(), copies);
    copy(in.tokens.offsets(), out.tokens.offsets(), in.tokens.size() + 1, copies);
    copy(in.tokens.data(), out.tokens.data(), in.tokens.total(), copies);
    copy(in.name.offsets(), out.name.offsets(), in.name.size() + 1, copies);
    copy(in.name.data(), out.name.data(), in.name.total(), copies);
    out.tokens.set_total(in.tokens.total());
    out.name.set_total(in.name.total());
  };
  Prefetcher<Texts> prefetcher(texts_layout(), sequential(10, kRows), write_texts,
                               {texts_layout(), transform}, {.workers = 2});
  while (auto batch = prefetcher.next(stream)) {
    const auto& samples = batch.ticket().samples;
    check_rows(Copy(texts_layout(), *batch, stream).host, {samples.begin(), samples.end()});
  }
}

}  // namespace
}  // namespace penstock::ragged_test
