// SPDX-License-Identifier: Apache-2.0

// The verdict on a grid of injected bottlenecks, held against what the stages noted themselves.

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "injected.hpp"
#include "support/catch.hpp"

using penstock::Bottleneck;
using penstock::Verdict;
using penstock::VerdictKind;
using penstock::test::Injected;
using penstock::test::Outcome;
using penstock::test::run;
using penstock::test::Shape;
using penstock::test::Truth;

namespace {

constexpr auto kWorkers = VerdictKind::more_workers;
constexpr auto kDeeper = VerdictKind::deeper_ring;
constexpr auto kSlots = VerdictKind::more_slots;
constexpr auto kSmaller = VerdictKind::smaller_bytes;
constexpr auto kBus = VerdictKind::bus_bound;
constexpr auto kCompute = VerdictKind::compute_bound;

// clang-format off
const std::vector<Injected> grid = {
    // The source is slow, by a factor; with jitter, in bursts, with stalls; of few and many workers.
    {.name = "source 1.2", .source = {2.4}, .consumer = {2}, .expected = kWorkers},
    {.name = "source 1.5", .source = {3}, .consumer = {2}, .expected = kWorkers},
    {.name = "source 2", .source = {4}, .consumer = {2}, .expected = kWorkers},
    {.name = "source 3", .source = {4.5}, .consumer = {1.5}, .expected = kWorkers},
    {.name = "source 5", .source = {5}, .consumer = {1}, .batches = 50, .expected = kWorkers},
    {.name = "source 10", .source = {10}, .consumer = {1}, .batches = 40, .expected = kWorkers},
    {.name = "source 3, synchronous", .source = {4.5}, .consumer = {1.5}, .synchronous = true, .expected = kWorkers},
    {.name = "source 2, of 2 workers", .source = {8}, .consumer = {2}, .workers = 2, .expected = kWorkers},
    {.name = "source 3, of 4 workers", .source = {18}, .consumer = {1.5}, .workers = 4, .host_depth = 8, .batches = 48, .expected = kWorkers},
    {.name = "source 2, of 8 workers", .source = {24}, .consumer = {1.5}, .workers = 8, .host_depth = 14, .batches = 80, .expected = kWorkers},
    {.name = "source 2, jitter", .source = {4, Shape::jitter}, .consumer = {2}, .expected = kWorkers},
    {.name = "source 2, bursts", .source = {4, Shape::bursts}, .consumer = {2}, .expected = kWorkers},
    {.name = "source 2, stalls", .source = {3, Shape::stalls, 20}, .consumer = {2}, .expected = kWorkers},
    {.name = "source 2, against jitter", .source = {4}, .consumer = {2, Shape::jitter}, .expected = kWorkers},
    {.name = "source 4 over the copy", .source = {4}, .consumer = {0.5}, .copy = 1, .expected = kWorkers},
    {.name = "device source 3", .source = {4.5}, .consumer = {1.5}, .device_depth = 4, .on_device = true, .expected = kWorkers},
    // The copy is slow.
    {.name = "copy 1.2", .source = {1}, .consumer = {2}, .copy = 2.4, .expected = kSmaller},
    {.name = "copy 1.5", .source = {1}, .consumer = {2}, .copy = 3, .expected = kSmaller},
    {.name = "copy 2", .source = {1}, .consumer = {2}, .copy = 4, .expected = kSmaller},
    {.name = "copy 3", .source = {0.5}, .consumer = {1.5}, .copy = 4.5, .expected = kSmaller},
    {.name = "copy 6", .source = {0.5}, .consumer = {1}, .copy = 7, .batches = 50, .expected = kBus},
    {.name = "copy 10", .source = {0.5}, .consumer = {1}, .copy = 12, .batches = 40, .expected = kBus},
    {.name = "copy 2, synchronous", .source = {1}, .consumer = {2}, .copy = 4, .synchronous = true, .expected = kSmaller},
    {.name = "copy 2, against jitter", .source = {1, Shape::jitter}, .consumer = {2, Shape::jitter}, .copy = 4, .expected = kSmaller},
    {.name = "copy 2, of 4 workers", .source = {4}, .consumer = {2}, .copy = 4, .workers = 4, .host_depth = 8, .expected = kSmaller},
    // The consumer is slow.
    {.name = "consumer 1.2", .source = {2}, .consumer = {2.6}, .expected = kCompute},
    {.name = "consumer 1.5", .source = {2}, .consumer = {3}, .expected = kCompute},
    {.name = "consumer 2", .source = {2}, .consumer = {4}, .expected = kCompute},
    {.name = "consumer 3", .source = {1.5}, .consumer = {4.5}, .expected = kCompute},
    {.name = "consumer 5", .source = {1}, .consumer = {5}, .batches = 50, .expected = kCompute},
    {.name = "consumer 10", .source = {1}, .consumer = {10}, .batches = 40, .expected = kCompute},
    {.name = "consumer 3, synchronous", .source = {1.5}, .consumer = {4.5}, .synchronous = true, .expected = kCompute},
    {.name = "consumer 2, jitter", .source = {1}, .consumer = {3, Shape::jitter}, .expected = kCompute},
    {.name = "consumer 2, bursts", .source = {1}, .consumer = {3, Shape::bursts}, .host_depth = 12, .expected = kCompute},
    {.name = "consumer 4, against jitter", .source = {1, Shape::jitter}, .consumer = {4}, .expected = kCompute},
    {.name = "consumer 1.5 over the copy", .source = {1}, .consumer = {3}, .copy = 2, .expected = kCompute},
    {.name = "consumer 2, of 4 workers", .source = {4}, .consumer = {2}, .workers = 4, .host_depth = 8, .expected = kCompute},
    {.name = "consumer 3, device source", .source = {1}, .consumer = {3}, .device_depth = 4, .on_device = true, .expected = kCompute},
    // Nobody is slow: they wait for one another by turns.
    {.name = "ring: bursts", .source = {1.6, Shape::bursts}, .consumer = {2}, .host_depth = 2, .batches = 80, .expected = kDeeper},
    {.name = "ring: long bursts", .source = {2, Shape::bursts}, .consumer = {3}, .host_depth = 2, .expected = kDeeper},
    {.name = "ring: rare long stalls", .source = {0.3, Shape::stalls, 22}, .consumer = {2}, .host_depth = 3, .batches = 80, .expected = kDeeper},
    {.name = "ring: stalls of 2 workers", .source = {1, Shape::stalls, 30}, .consumer = {2}, .workers = 2, .host_depth = 3, .batches = 80, .expected = kDeeper},
    {.name = "ring: jitter of both", .source = {2.6, Shape::jitter}, .consumer = {3, Shape::bursts}, .host_depth = 1, .device_depth = 2, .expected = kDeeper},
    {.name = "ring: one block", .source = {2}, .consumer = {2}, .copy = 2, .host_depth = 1, .expected = kDeeper},
    {.name = "ring: fewer blocks than workers", .source = {8}, .consumer = {2}, .workers = 4, .host_depth = 2, .expected = kDeeper},
    {.name = "ring: one slot", .source = {1}, .consumer = {2}, .copy = 2, .device_depth = 1, .expected = kDeeper},
    {.name = "ring: one slot, synchronous", .source = {0.5}, .consumer = {2}, .copy = 1, .device_depth = 1, .synchronous = true, .expected = kDeeper},
    {.name = "slots: rare long stalls", .source = {0.3, Shape::stalls, 22}, .consumer = {2}, .device_depth = 3, .synchronous = true, .on_device = true, .batches = 80, .expected = kSlots},
};
// clang-format on

// ---- What the truth allows ----------------------------------------------------------------------

// Beside a threshold of the rules either answer is right: the truth is measured too.
constexpr double kBand = 0.05;

bool clearly_above(double value, double threshold) {
  return value > threshold + kBand;
}
bool clearly_below(double value, double threshold) {
  return value < threshold - kBand;
}

// What the consumer misses, the rules call noise up to 0.05. Of the time between two steps, a part
// goes to waking the stream's thread: at most one of these two is in doubt.
bool starves(const Truth& truth) {
  return truth.starved() > 0.02;
}
bool does_not_starve(const Truth& truth) {
  return truth.starved() < 0.1;
}

double load_of(const Truth& truth, Bottleneck stage) {
  return stage == Bottleneck::source     ? truth.source
         : stage == Bottleneck::copy     ? truth.copy
         : stage == Bottleneck::consumer ? truth.consumer
                                         : 1;
}

bool is_right(const Truth& truth, Bottleneck stage) {
  const double others = std::max(truth.source, truth.copy);
  const double most = std::max(others, truth.consumer);
  if (stage == Bottleneck::balanced)
    return (does_not_starve(truth) && !clearly_below(others, 0.9)) || !clearly_above(most, 0.5);
  if (stage == Bottleneck::consumer && does_not_starve(truth) && !clearly_above(others, 0.9))
    return true;
  return starves(truth) && load_of(truth, stage) > most - kBand;
}

bool is_right(const Truth& truth, const Verdict& verdict) {
  if (!is_right(truth, verdict.stage)) return false;
  const double load = load_of(truth, verdict.stage);
  const double smaller = truth.copy / std::max(truth.source, truth.consumer);
  switch (verdict.kind) {
    case VerdictKind::more_workers:
      return verdict.stage == Bottleneck::source && !clearly_below(load, 0.9);
    case VerdictKind::deeper_ring:
    case VerdictKind::more_slots:
      return starves(truth) && (verdict.stage == Bottleneck::consumer ||
                                verdict.stage == Bottleneck::balanced || !clearly_above(load, 0.9));
    case VerdictKind::smaller_bytes:
      return verdict.stage == Bottleneck::copy && smaller < 4.5;
    case VerdictKind::bus_bound:
      return verdict.stage == Bottleneck::copy && smaller > 3.5;
    case VerdictKind::compute_bound:
      return verdict.stage == Bottleneck::consumer && does_not_starve(truth);
    case VerdictKind::balanced:
      return verdict.stage == Bottleneck::balanced && does_not_starve(truth);
    case VerdictKind::too_early:
      return false;
  }
  return false;
}

// ---- The table ----------------------------------------------------------------------------------

void print_head() {
  std::printf("%-32s %7s | %6s %6s %8s | %-9s %-14s %s\n", "case", "ms", "source", "copy",
              "consumer", "stage", "verdict", "");
}

void print(const Injected& injected, const Outcome& outcome, const Verdict& verdict, bool right) {
  std::printf(
      "%-32s %7.2f | %6.2f %6.2f %8.2f | %-9s %-14s %s%s\n    %s\n", injected.name,
      outcome.truth.period, outcome.truth.source, outcome.truth.copy, outcome.truth.consumer,
      to_string(verdict.stage), to_string(verdict.kind), right ? "right" : "WRONG",
      verdict.kind == injected.expected ? "" : ", and not as injected", verdict.sentence.c_str());
  std::fflush(stdout);
}

/// A stage and a whole factor, nothing else.
bool is_plain(const std::string& name) {
  const std::size_t space = name.find(' ');
  return name.rfind("ring", 0) != 0 &&
         name.find_first_not_of("0123456789", space + 1) == std::string::npos;
}

/// One of three runs must be undisturbed: the stages sleep, and others may need the processors.
bool mends(Injected injected, const char* what) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Outcome before = run(injected);
    const Verdict verdict = before.stats.verdict();
    Injected mended = injected;
    if (verdict.enough_workers > 0) mended.workers = verdict.enough_workers;
    if (verdict.enough_host_depth > 0) mended.host_depth = verdict.enough_host_depth;
    if (verdict.enough_device_depth > 0) mended.device_depth = verdict.enough_device_depth;
    mended.host_depth = std::max(mended.host_depth, static_cast<std::size_t>(mended.workers) + 2);
    const Outcome after = run(mended);
    std::printf(
        "%-32s %s: starved %.2f, then %.2f with %d workers, host_depth %zu, device_depth %zu\n",
        injected.name, what, before.truth.starved(), after.truth.starved(), mended.workers,
        mended.host_depth, mended.device_depth);
    if (after.truth.starved() < before.truth.starved() / 2) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the verdict is right on a grid of injected bottlenecks", "[verdict]") {
  REQUIRE(grid.size() >= 30);
  std::size_t right = 0, as_injected = 0;
  print_head();
  for (const Injected& injected : grid) {
    const Outcome outcome = run(injected);
    const Verdict verdict = outcome.stats.verdict();
    const bool is = is_right(outcome.truth, verdict);
    print(injected, outcome, verdict, is);
    right += is;
    as_injected += verdict.kind == injected.expected;
    INFO(injected.name << ": " << outcome.stats);
    CHECK(load_of(outcome.truth, verdict.stage) >= 0.5 - kBand);
    CHECK(verdict.stage == outcome.stats.bottleneck());
  }
  std::printf("%zu of %zu right, %zu as injected\n", right, grid.size(), as_injected);
  CHECK(right * 100 >= grid.size() * 95);
  CHECK(as_injected * 100 >= grid.size() * 80);
}

TEST_CASE("without device times the stage is right where the bottleneck is steady", "[verdict]") {
  std::size_t right = 0, all = 0;
  for (Injected injected : grid) {
    if (!is_plain(injected.name)) continue;
    injected.device_times = false;
    injected.batches = 30;
    const Outcome outcome = run(injected);
    const Verdict verdict = outcome.stats.verdict();
    const bool is = is_right(outcome.truth, verdict.stage);
    print(injected, outcome, verdict, is);
    ++all;
    right += is;
    CHECK(load_of(outcome.truth, verdict.stage) >= 0.5 - kBand);
  }
  CHECK(all >= 10);
  CHECK(right * 100 >= all * 90);
}

TEST_CASE("what the verdict says is enough is enough", "[verdict]") {
  const auto find = [](const std::string& name) {
    return *std::find_if(grid.begin(), grid.end(),
                         [&](const Injected& injected) { return injected.name == name; });
  };
  CHECK(mends(find("source 3"), "more workers"));
  CHECK(mends(find("source 2, of 2 workers"), "more workers"));
  CHECK(mends(find("device source 3"), "more workers"));
  CHECK(mends(find("slots: rare long stalls"), "more slots"));
  CHECK(mends(find("ring: rare long stalls"), "deeper ring"));
  CHECK(mends(find("ring: bursts"), "deeper ring"));
  CHECK(mends(find("ring: one slot"), "deeper ring"));
}
