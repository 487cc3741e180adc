// SPDX-License-Identifier: Apache-2.0

// Several ranks: where the step of each goes, which one is the slowest and why, and all of them on
// one time axis.

#include <algorithm>
#include <cmath>
#include <penstock/trace/report.hpp>
#include <span>
#include <string>
#include <vector>

#include "joined.hpp"
#include "rank_times.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"
#include "timeline_builder.hpp"

using namespace penstock::trace;
using penstock::test::Mentions;
using penstock::test::thrown;
using penstock::test::TimelineBuilder;
using penstock::test::us;
using penstock::trace::detail::communicates;
using penstock::trace::detail::join;
using penstock::trace::detail::Joined;
using penstock::trace::detail::Part;
using penstock::trace::detail::RankTimes;
using penstock::trace::detail::Slowest;
using penstock::trace::detail::slowest_of;

namespace {

/// Ranks in step: each step takes 1000 us on all of them, since the others wait in the all-reduce
/// for the slowest one.
struct Rank {
  int number = 0;
  double batch = 50;     ///< us that the host waits for one, while nothing runs
  double kernel = 400;   ///< us
  double copy = 0;       ///< us of a copy with nothing beside it
  double overlap = 100;  ///< us of the all-reduce that lie under the kernel
  int steps = 10;
  double period = 1000;  ///< us

  Timeline timeline() const {
    TimelineBuilder builder;
    const auto compute = builder.stream(0, 13), reduce = builder.stream(0, 14);
    const auto main = builder.thread(4711, "main");
    const double launch = 10;
    for (int i = 0; i < steps; ++i) {
      const double begin = period * i, got = begin + batch;
      builder.range(main, "step", {begin, begin + period});
      builder.range(main, "load", {begin, got});
      double at = got + launch;
      if (copy > 0) {
        builder.copy(main, compute, 1 << 20, {got, at}, {at, at + copy});
        at += copy;
      }
      builder.launch(main, compute, "forward", {got, got + launch}, {at, at + kernel});
      const double behind = at + kernel;
      builder.launch(main, reduce, "ncclDevKernel_AllReduce_Sum_f16_RING_LL(args)",
                     {got + launch, got + 2 * launch}, {behind - overlap, begin + period});
    }
    builder.origin().rank = number;
    builder.origin().host = "node" + std::to_string(number);
    return builder.timeline();
  }
};

RankTimes times(const Rank& rank) {
  return {rank.timeline(), {}};
}

Slowest slowest(const std::vector<Rank>& ranks) {
  std::vector<RankTimes> all;
  for (const Rank& rank : ranks) all.push_back(times(rank));
  return slowest_of(all);
}

bool is(double value, double microseconds) {
  return std::abs(value - 1000 * microseconds) < 100;
}

}  // namespace

TEST_CASE("ranks: each moment of a step is of one part, and the first that is true of it") {
  const RankTimes rank = times({.batch = 50, .kernel = 400, .copy = 30, .overlap = 100});
  CHECK(is(rank.step(), 1000));
  CHECK(is(rank[Part::kernels], 400));
  CHECK(is(rank[Part::copies], 30));
  CHECK(is(rank[Part::communication], 1000 - 60 - 30 - 400));  // not what lies under the kernel
  CHECK(is(rank[Part::input], 60));  // and the launch behind it, which is shorter
  CHECK(is(rank.own(), 490));
  CHECK(is(rank.kernels.at("forward"), 400));
  CHECK(rank.kernels.size() == 1);
  CHECK(is(static_cast<double>(rank.report.step_mean), rank.step() / 1000));
}

TEST_CASE("ranks: the slowest is the one for which the others wait, though all steps are as long") {
  const Rank even{.number = 0};
  SECTION("by its input") {
    const Slowest found = slowest({even, {.number = 1, .batch = 250}, {.number = 2}});
    CHECK(found.index == 1);
    CHECK(found.stands_out);
    CHECK(is(found.excess, 200));
    CHECK(found.part == Part::input);
    CHECK(is(found.part_excess, 200));
    CHECK_THAT(found.reason,
               Mentions("source-bound (in 'load'); its 'load' takes 250 us, 50.0 us"));
  }
  SECTION("by its kernels") {
    const Slowest found = slowest({{.number = 0, .kernel = 500}, even, even});
    CHECK(found.index == 0);
    CHECK(found.part == Part::kernels);
    CHECK_THAT(found.reason,
               Mentions("its kernels take longer; its 'forward' takes 500 us, 400 us"));
  }
  SECTION("never by communication, which is no time of its own") {
    const Slowest found = slowest({even, {.number = 1, .kernel = 500, .period = 1500}});
    CHECK(is(found.excess, 100));
    CHECK(found.part == Part::kernels);
  }
  SECTION("by its copies") {
    const Slowest found = slowest({even, {.number = 1, .copy = 80}});
    CHECK(found.index == 1);
    CHECK(found.part == Part::copies);
    CHECK(is(found.part_excess, 80));
  }
  SECTION("none") {
    const Slowest found = slowest({even, {.number = 1, .kernel = 405}});
    CHECK(found.index == 1);
    CHECK_FALSE(found.stands_out);
  }
}

TEST_CASE(
    "ranks: without steps all of the time counts as one, and nothing at all is no rank's fault") {
  TimelineBuilder builder;
  const auto compute = builder.stream(0, 7);
  const auto main = builder.thread(1);
  builder.launch(main, compute, "scale", {0, 10}, {10, 110});
  const RankTimes rank(builder.timeline(), {});
  CHECK(rank.report.steps == 0);
  CHECK(is(rank[Part::kernels], 100));
  const RankTimes nothing(TimelineBuilder().timeline(), {});
  CHECK(nothing.step() == 0);
  CHECK_FALSE(slowest_of({nothing, nothing}).stands_out);
}

TEST_CASE("ranks: parts add up to the step, however many gaps there are") {
  const RankTimes rank = times({.steps = 300});
  CHECK(is(rank.step(), 1000));
  CHECK(rank[Part::unknown] > 0);
  CHECK(is(rank[Part::input] + rank[Part::unknown], 60));
}

TEST_CASE("ranks: what communicates is told by its name") {
  for (const char* name : {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "_Z24ncclKernel_AllReduceSum",
                           "resnet::(anonymous)::AllReduce", "all_reduce", "all-reduce"})
    CHECK(communicates(name));
  for (const char* name : {"", "reduce_kernel", "broadcast", "volta_fp16_sgemm"})
    CHECK_FALSE(communicates(name));
}

TEST_CASE("ranks: on one machine they lie as they were") {
  std::vector<Timeline> parts{Rank{.number = 3}.timeline(), Rank{.number = 5}.timeline()};
  for (Timeline& part : parts) part.origin.host = "node";
  parts[1].origin.wall_clock = 900'000'000;  // as set meanwhile
  for (Timeline& part : parts) {
    part.memory = {{part.begin, 1000, 0}};
    part.engine_use = {{part.begin, 50, 0}};
  }
  const Joined joined = join(parts);
  const Timeline& all = joined.timeline;
  CHECK(joined.shifts == std::vector<Time>{0, 0});
  REQUIRE(all.events.size() == parts[0].events.size() + parts[1].events.size());
  REQUIRE(all.tracks.size() == 6);
  CHECK(title(all.tracks[0]) == "rank 3: device 0, stream 13");
  CHECK(title(all.tracks[3]) == "rank 5: device 1, stream 14");
  CHECK(title(all.tracks[4]) == "rank 3: main");
  CHECK(all.tracks[5].rank == 5);
  CHECK(joined.tracks[1] == std::vector<std::uint32_t>{2, 3, 5});
  CHECK(all.names.size() == parts[0].names.size());
  CHECK(all.origin.host == "node");
  REQUIRE(all.memory.size() == 2);
  CHECK(all.memory[0].device == 0);
  CHECK(all.memory[1].device == 1);  // the other rank's device 0
  REQUIRE(all.engine_use.size() == 2);
  CHECK(all.engine_use[1].device == 1);
  CHECK(all.origin.rank == -1);
  // A call's work is still its own rank's.
  for (const Event& event : all.events)
    for (const Event& other : all.events)
      if (event.correlation != 0 && event.correlation == other.correlation)
        CHECK(all.track(event).rank == all.track(other).rank);
}

TEST_CASE("ranks: between machines the wall clocks tell") {
  std::vector<Timeline> parts{Rank{.number = 0}.timeline(), Rank{.number = 1}.timeline()};
  parts[0].origin.wall_clock = us(7'000'000);
  parts[1].origin.wall_clock = us(7'000'300);
  Joined joined = join(parts);
  CHECK(joined.shifts[1] == us(300));
  CHECK(joined.timeline.begin == parts[0].begin);
  for (const std::size_t rank : {0U, 1U}) {
    const auto its = std::find_if(
        joined.timeline.events.begin(), joined.timeline.events.end(), [&](const Event& event) {
          return joined.timeline.track(event).rank == static_cast<int>(rank);
        });
    CHECK(its->begin == parts[rank].events.front().begin + joined.shifts[rank]);
    CHECK(its->end == parts[rank].events.front().end + joined.shifts[rank]);
  }
  CHECK(joined.timeline.end == parts[1].end + us(300));
  CHECK(joined.timeline.origin.host == "node0, node1");
  // Two machines may both be called localhost: they have not been up for the same time.
  for (Timeline& part : parts) part.origin.host = "localhost";
  parts[1].origin.wall_clock = us(9'000'000);
  joined = join(parts);
  CHECK(joined.shifts[1] == us(2'000'000));
}

TEST_CASE("ranks: numbers that run out, and times that no sum holds") {
  std::vector<Timeline> parts{Rank{.number = 0}.timeline(), Rank{.number = 1}.timeline()};
  for (Event& event : parts[0].events)
    if (event.correlation == 1) event.correlation = 0xFFFFFFFF;
  for (const Event& event : join(parts).timeline.events)
    CHECK((event.correlation == 0 || event.correlation == 0xFFFFFFFF || event.correlation <= 20));
  for (Timeline& part : parts) part.events.back().end = part.end = Time{3} << 60;
  CHECK_THAT(thrown<std::runtime_error>([&] { join(parts); }), Mentions("last for centuries"));
}
