// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <limits>
#include <memory>
#include <penstock/any_sampler.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/sampled.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::batch_of;
using test::Mentions;
using test::Samples;
using test::thrown;

/// The same sample again and again; counts its copies. Has no seed.
struct Repeat {
  explicit Repeat(std::uint64_t number) : sample(number) {}
  Repeat(const Repeat& other) : sample(other.sample), copies(other.copies) { ++*copies; }
  Repeat(Repeat&&) = default;

  std::uint32_t batches() const { return 3; }  // anything that turns into std::uint64_t
  void samples(std::uint64_t epoch, std::uint64_t batch, Samples& out) const {
    out.assign(batch + 1, sample + epoch);
  }

  std::uint64_t sample;
  std::shared_ptr<int> copies = std::make_shared<int>(0);
};

struct MoveOnly {
  std::uint64_t batches() const { return *count; }
  void samples(std::uint64_t, std::uint64_t, Samples& out) const { out.clear(); }
  std::unique_ptr<std::uint64_t> count;
};

// What is no sampler.
struct NoSamples {
  std::uint64_t batches() const;
};
struct NotConst {
  std::uint64_t batches() const;
  void samples(std::uint64_t, std::uint64_t, Samples&);
};
static_assert(BatchSampler<Repeat> && BatchSampler<MoveOnly>);
static_assert(!BatchSampler<NoSamples> && !BatchSampler<NotConst> && !BatchSampler<int>);
static_assert(std::is_convertible_v<Repeat, AnySampler>);
static_assert(!std::is_constructible_v<AnySampler, NotConst>);

TEST_CASE("AnySampler does what its sampler does", "[any_sampler]") {
  const Sampler sampler({.samples = 1000, .batch_size = 32, .shuffle = true, .seed = 21});
  const AnySampler any = sampler;
  CHECK(any.batches() == sampler.batches());
  CHECK(any.seed() == 21);
  Samples expected;
  for (std::uint64_t batch = 0; batch < any.batches(); ++batch) {
    sampler.samples(2, batch, expected);
    CHECK(batch_of(any, 2, batch) == expected);
  }
  CHECK_THROWS_AS(batch_of(any, 0, 1000), std::out_of_range);
}

TEST_CASE("AnySampler takes any type with batches() and samples()", "[any_sampler]") {
  const AnySampler any = Repeat{5};
  CHECK(any.batches() == 3);
  CHECK(any.seed() == 0);
  CHECK(batch_of(any, 10, 1) == Samples{15, 15});

  const AnySampler moved{MoveOnly{std::make_unique<std::uint64_t>(7)}};
  CHECK(moved.batches() == 7);
}

TEST_CASE("AnySampler: the start of a run is what its sampler says of itself", "[any_sampler]") {
  const AnySampler all = Sampler(
      {.samples = 1000, .batch_size = 32, .shuffle = true, .seed = 21, .rank = 1, .world_size = 3});
  CHECK(all.start() == State{.seed = 21,
                             .samples = 1000,
                             .order = 2,
                             .batches = 11,
                             .batch_size = 32,
                             .world_size = 3});
  CHECK(AnySampler(Sampler({.samples = 10, .batch_size = 2})).start().order == 1);
  CHECK(AnySampler(Repeat{5}).start() == State{.batches = 3});
  CHECK(AnySampler(Unbounded{3, 8}).start() ==
        State{.seed = 8, .batches = std::numeric_limits<std::uint64_t>::max(), .batch_size = 3});
}

TEST_CASE("AnySampler: copies share one sampler", "[any_sampler]") {
  const Repeat repeat{5};
  AnySampler any = repeat;
  CHECK(*repeat.copies == 1);

  const std::uint64_t before = test::allocations_of_this_thread();
  AnySampler copy = any;
  const AnySampler copy_of_const = std::as_const(copy);
  copy = copy_of_const;
  const AnySampler moved = std::move(any);
  CHECK(test::allocations_of_this_thread() == before);
  CHECK(*repeat.copies == 1);
  CHECK(batch_of(moved, 0, 0) == Samples{5});
  CHECK(batch_of(copy, 0, 0) == Samples{5});
}

TEST_CASE("Unbounded numbers samples on and on", "[any_sampler]") {
  const AnySampler any = Unbounded{3};
  CHECK(any.batches() == std::numeric_limits<std::uint64_t>::max());
  CHECK(any.seed() == 0);
  CHECK(batch_of(any, 0, 0) == Samples{0, 1, 2});
  CHECK(batch_of(any, 0, 1'000'000'000'000) ==
        Samples{3'000'000'000'000, 3'000'000'000'001, 3'000'000'000'002});
  CHECK(batch_of(any, 4, 1) == Samples{3, 4, 5});
  CHECK(AnySampler(Unbounded{3, 8}).seed() == 8);
}

TEST_CASE("Unbounded rejects batches of nothing", "[any_sampler]") {
  CHECK_THAT(thrown<std::invalid_argument>([] { Unbounded{0}; }), Mentions("batch_size is 0"));
  CHECK_THAT(thrown<std::invalid_argument>([] { Unbounded{-2}; }), Mentions("batch_size is -2"));
}

}  // namespace
}  // namespace penstock
