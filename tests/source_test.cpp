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

bool fill(AnySource<Listed>& source, Listed& batch, const Ticket& ticket = {}) {
  return source(ticket, batch, std::stop_token{});
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

  AnySource<Listed> returns_a_number = [](const Ticket&, Listed&) { return 0; };  // not a bool
  CHECK(fill(returns_a_number, batch));
}

TEST_CASE("AnySource tells a callable that asks for it to stop", "[source]") {
  AnySource<Listed> source = Stops{};
  Listed batch;
  std::stop_source stop;
  CHECK(source({}, batch, stop.get_token()));
  stop.request_stop();
  CHECK_FALSE(source({}, batch, stop.get_token()));
}

TEST_CASE("AnySource: copies have their own state, and share what is captured by reference",
          "[source]") {
  int shared = 0;
  AnySource<Listed> first = [&shared, own = 0](const Ticket&, Listed& batch) mutable {
    ++shared;
    batch.values.push_back(static_cast<std::uint64_t>(++own));
  };
  AnySource<Listed> second = first;
  Listed batch;
  fill(first, batch);
  fill(first, batch);
  fill(second, batch);
  CHECK(batch.values == std::vector<std::uint64_t>{1, 2, 1});
  CHECK(shared == 3);

  second = first;
  fill(second, batch);
  CHECK(batch.values.back() == 3);
}

TEST_CASE("AnySource takes a std::function, a Source", "[source]") {
  const Source<Listed> plain = [](const Ticket&, Listed& batch) { batch.values = {9}; };
  AnySource<Listed> source = plain;
  Listed batch;
  CHECK(fill(source, batch));
  CHECK(batch.values == std::vector<std::uint64_t>{9});
}

TEST_CASE("AnySource lets exceptions through", "[source]") {
  AnySource<Listed> source = [](const Ticket&, Listed&) { throw std::runtime_error("bad image"); };
  Listed batch;
  CHECK(thrown<std::runtime_error>([&] { fill(source, batch); }) == "bad image");
}

}  // namespace
}  // namespace penstock
