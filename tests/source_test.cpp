// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <functional>
#include <memory>
#include <penstock/source.hpp>
#include <stdexcept>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::thrown;

struct Listed {
  std::vector<std::uint64_t> values;  // any type: a source knows nothing of layouts
};

struct Stops {
  bool operator()(const Ticket&, Listed&, std::stop_token stop) const {
    return !stop.stop_requested();
  }
};

// What is a source of Listed, and what is none.
static_assert(std::is_convertible_v<Stops, AnySource<Listed>>);
static_assert(std::is_convertible_v<Source<Listed>, AnySource<Listed>>);
static_assert(std::is_convertible_v<void (*)(const Ticket&, Listed&), AnySource<Listed>>);
static_assert(!std::is_constructible_v<AnySource<Listed>, int>);
static_assert(!std::is_constructible_v<AnySource<Listed>, void (*)(Listed&)>);
static_assert(!std::is_constructible_v<AnySource<Listed>, void (*)(const Ticket&, int&)>);
static_assert(std::is_copy_constructible_v<AnySource<Listed>>);

/// What a worker has of `source`.
std::unique_ptr<detail::WorkerSource> own(AnySource<Listed> source) {
  return std::move(source).erased().make();
}

bool fill(detail::WorkerSource& source, Listed& batch, const Ticket& ticket = {},
          const std::stop_token& stop = {}) {
  return source.fill_batch(ticket, &batch, nullptr, stop);
}
bool fill(const AnySource<Listed>& source, Listed& batch, const Ticket& ticket = {}) {
  return fill(*own(source), batch, ticket);
}

TEST_CASE("AnySource hands the ticket and the batch to the callable", "[source]") {
  const std::vector<std::uint64_t> samples{5, 6};
  AnySource<Listed> source = [](const Ticket& ticket, Listed& batch) {
    batch.values = {ticket.epoch, ticket.batch, ticket.seed, ticket.samples[0], ticket.samples[1]};
  };
  Listed batch;
  CHECK(fill(source, batch, {1, 2, 3, samples}));
  CHECK(batch.values == std::vector<std::uint64_t>{1, 2, 3, 5, 6});
}

TEST_CASE("AnySource: false ends the data, everything else goes on", "[source]") {
  Listed batch;
  AnySource<Listed> ends = [](const Ticket& ticket, Listed&) { return ticket.batch < 2; };
  CHECK(fill(ends, batch, {.epoch = 0, .batch = 1, .seed = 0, .samples = {}}));
  CHECK_FALSE(fill(ends, batch, {.epoch = 0, .batch = 2, .seed = 0, .samples = {}}));
}

TEST_CASE("AnySource tells a callable that asks for it to stop", "[source]") {
  const auto source = own(Stops{});
  Listed batch;
  std::stop_source stop;
  CHECK(fill(*source, batch, {}, stop.get_token()));
  stop.request_stop();
  CHECK_FALSE(fill(*source, batch, {}, stop.get_token()));
}

TEST_CASE("AnySource: each worker has its own state, and shares what is captured by reference",
          "[source]") {
  int shared = 0;
  const AnySource<Listed> source = [&shared, own = 0](const Ticket&, Listed& batch) mutable {
    ++shared;
    batch.values.push_back(static_cast<std::uint64_t>(++own));
  };
  const auto first = own(source), second = own(source);
  Listed batch;
  fill(*first, batch);
  fill(*first, batch);
  fill(*second, batch);
  CHECK(batch.values == std::vector<std::uint64_t>{1, 2, 1});
  CHECK(shared == 3);
}

TEST_CASE("per_sample: the source is asked for one row", "[source]") {
  const AnySource<Listed> source = per_sample([](const Sample& sample, Listed& batch) {
    batch.values = {sample.index, static_cast<std::uint64_t>(sample.row), sample.seed};
  });
  Listed batch;
  own(source)->fill_row({.index = 7, .row = 2, .seed = 9}, &batch, {});
  CHECK(batch.values == std::vector<std::uint64_t>{7, 2, 9});
}

TEST_CASE("per_worker: what make returns need not be copyable, and is each worker's own",
          "[source]") {
  int made = 0;
  const auto make = [&made] {
    ++made;
    return [calls = std::make_unique<std::uint64_t>(0)](const Ticket&, Listed& batch) {
      batch.values.push_back(++*calls);
    };
  };
  const AnySource<Listed> source = per_worker(make);
  CHECK(made == 0);
  const auto first = own(source), second = own(source);
  CHECK(made == 2);
  Listed batch;
  fill(*first, batch);
  fill(*first, batch);
  fill(*second, batch);
  CHECK(batch.values == std::vector<std::uint64_t>{1, 2, 1});
}

TEST_CASE("sample_seed is of the sample: the same in any batch, another in each epoch and run",
          "[source]") {
  const std::vector<std::uint64_t> samples{5, 6};
  const Ticket ticket{.epoch = 1, .batch = 2, .seed = 3, .samples = samples, .run_seed = 7};
  CHECK(ticket.sample_seed(1) == sample_seed(7, 1, 6));
  CHECK(sample_seed(7, 1, 6) != sample_seed(7, 2, 6));
  CHECK(sample_seed(7, 1, 6) != sample_seed(8, 1, 6));
  CHECK(sample_seed(7, 1, 6) != sample_seed(7, 1, 7));
}

TEST_CASE("AnySource takes a std::function, a Source", "[source]") {
  const Source<Listed> plain = [](const Ticket&, Listed& batch) { batch.values = {9}; };
  AnySource<Listed> source = plain;
  Listed batch;
  CHECK(fill(source, batch));
  CHECK(batch.values == std::vector<std::uint64_t>{9});
}

TEST_CASE("AnySource refuses what holds no function", "[source]") {
  using Pointer = void (*)(const Ticket&, Listed&);
  CHECK_THROWS_AS(AnySource<Listed>(Source<Listed>()), std::invalid_argument);
  CHECK_THROWS_AS(AnySource<Listed>(Pointer{nullptr}), std::invalid_argument);
  CHECK_THROWS_AS(AnySource<Listed>(per_sample(std::function<void(const Sample&, Listed&)>())),
                  std::invalid_argument);
  const AnySource<Listed> made_empty(per_worker([] { return Source<Listed>(); }));
  CHECK_THROWS_AS(own(made_empty), std::invalid_argument);
}

TEST_CASE("AnySource lets exceptions through", "[source]") {
  AnySource<Listed> source = [](const Ticket&, Listed&) { throw std::runtime_error("bad image"); };
  Listed batch;
  CHECK(thrown<std::runtime_error>([&] { fill(source, batch); }) == "bad image");
}

}  // namespace
}  // namespace penstock
