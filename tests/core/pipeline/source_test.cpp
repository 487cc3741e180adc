// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <functional>
#include <memory>
#include <penstock/source.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
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

TEST_CASE("per_worker: the state is an argument, made once for each worker, and need not be copied",
          "[source]") {
  int made = 0;
  const auto make = [&made] {
    ++made;
    return std::make_unique<std::uint64_t>(10 * made);
  };
  using State = std::unique_ptr<std::uint64_t>;
  const AnySource<Listed> source =
      per_worker(make, [own = 0](State& state, const Ticket& ticket, Listed& batch) mutable {
        batch.values = {++*state, static_cast<std::uint64_t>(++own), ticket.batch};
        return ticket.batch < 7;
      });
  CHECK(made == 0);
  const auto first = own(source), second = own(source);
  CHECK(made == 2);
  const auto values = [](detail::WorkerSource& worker, std::uint64_t number) {
    Listed batch;
    CHECK(fill(worker, batch, {.epoch = 0, .batch = number, .seed = 0, .samples = {}}) ==
          (number < 7));
    return batch.values;
  };
  using Values = std::vector<std::uint64_t>;
  CHECK(values(*first, 3) == Values{11, 1, 3});
  CHECK(values(*first, 7) == Values{12, 2, 7});  // false: the end
  CHECK(values(*second, 0) == Values{21, 1, 0});
}

TEST_CASE("per_worker: the state is an argument in every kind of source, with a stop token too",
          "[source]") {
  std::stop_source stop;
  const auto make = [] { return std::string("state"); };
  const AnySource<Listed> rows = per_sample(
      per_worker(make, [](const std::string& state, const Sample& sample, Listed& batch) {
        batch.values = {state.size(), sample.index};
      }));
  Listed batch;
  own(rows)->fill_row({.index = 7, .row = 2, .seed = 9}, &batch, {});
  CHECK(batch.values == std::vector<std::uint64_t>{5, 7});
  // A generic function takes what it is given.
  const AnySource<Listed> stoppable = per_sample(per_worker(
      make, [](auto& state, const auto& sample, auto& filled, const std::stop_token& token) {
        filled.values = {state.size(), sample.index, token.stop_requested() ? 1u : 0u};
      }));
  stop.request_stop();
  own(stoppable)->fill_row({.index = 7, .row = 2, .seed = 9}, &batch, stop.get_token());
  CHECK(batch.values == std::vector<std::uint64_t>{5, 7, 1});
  const AnySource<Listed> device = on_device(
      per_worker(make, [](std::string& state, const Ticket&, Listed& filled, cudaStream_t stream) {
        filled.values = {state.size(), stream == nullptr ? 1u : 0u};
      }));
  CHECK(fill(device, batch));
  CHECK(batch.values == std::vector<std::uint64_t>{5, 1});
  // What is made may be a reference, to what belongs to somebody else.
  std::string shared = "shared";
  const AnySource<Listed> referring =
      per_worker([&shared]() -> std::string& { return shared; },
                 [](std::string& state, const Ticket&, Listed&) { state += "!"; });
  fill(referring, batch);
  CHECK(shared == "shared!");
}

TEST_CASE("per_worker refuses what holds no function", "[source]") {
  using Make = std::function<int()>;
  using Fill = std::function<void(int&, const Ticket&, Listed&)>;
  const Make make = [] { return 1; };
  const Fill fill = [](int&, const Ticket&, Listed&) {};
  CHECK_NOTHROW(AnySource<Listed>(per_worker(make, fill)));
  CHECK_THROWS_AS(per_worker(Make(), fill), std::invalid_argument);
  CHECK_THROWS_AS(per_worker(make, Fill()), std::invalid_argument);
  CHECK_THROWS_AS(per_worker(std::function<Source<Listed>()>()), std::invalid_argument);
  CHECK_THAT(thrown<std::invalid_argument>([&] { per_worker(make, Fill()); }),
             test::Mentions("it holds no function to call"));
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
