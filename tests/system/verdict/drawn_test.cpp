// SPDX-License-Identifier: Apache-2.0

// What the verdict foretells of pipelines that are drawn at random, held against what they do then:
// each is run as it is, and with each of its settings and the times of its stages changed in turn.
// In the environment, PENSTOCK_VERDICT_SEED draws others, PENSTOCK_VERDICT_CASES says how many, and
// PENSTOCK_VERDICT_FIRST with which of them it begins.

#include <penstock/stats.hpp>

#include <penstock/detail/observe/judge.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline.hpp"
#include "support/catch.hpp"

using penstock::Bottleneck;
using penstock::Stats;
using penstock::Verdict;
using penstock::VerdictKind;
using penstock::detail::Judge;
using penstock::detail::Replay;
using penstock::detail::ReplaySettings;
using penstock::test::draw;
using penstock::test::Outcome;
using penstock::test::Pipeline;
using penstock::test::run;
using penstock::test::Source;

namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::stoull(value);
}

/// Threads had to wait for a processor, which is no stage of the pipeline.
constexpr double kDisturbed = 0.05;

/// Runs it until that was not so, at most three times; the calmest run counts.
Outcome run_calmly(const Pipeline& pipeline) {
  Outcome best = run(pipeline);
  for (int again = 0; again < 2 && best.truth.overslept > kDisturbed; ++again) {
    Outcome other = run(pipeline);
    if (other.truth.overslept < best.truth.overslept) best = std::move(other);
  }
  return best;
}

/// A change, in the pipeline and in a replay of it.
struct Change {
  const char* name;
  Bottleneck stage;  ///< whose time it is; balanced: a setting
  std::function<void(Pipeline&)> pipeline;
  std::function<void(ReplaySettings&)> settings;
};

constexpr double kFaster = 0.6;

std::vector<Change> changes(const Pipeline& pipeline, const Stats& stats) {
  const bool on_host = pipeline.source == Source::batch || pipeline.source == Source::sample;
  std::vector<Change> all{
      {"repeated", Bottleneck::balanced, [](Pipeline&) {}, [](ReplaySettings&) {}},
      {"workers + 1", Bottleneck::balanced,
       [&stats, on_host](Pipeline& changed) {
         ++changed.workers;
         if (on_host) changed.host_depth = stats.host_depth;
       },
       [](ReplaySettings& settings) { ++settings.workers; }},
      {"device_depth + 1", Bottleneck::balanced,
       [&stats, on_host](Pipeline& changed) {
         ++changed.device_depth;
         if (on_host) changed.host_depth = stats.host_depth;
       },
       [](ReplaySettings& settings) { ++settings.device_depth; }},
      {"source", Bottleneck::source,
       [](Pipeline& changed) { changed.fill.milliseconds *= kFaster; },
       [](ReplaySettings& settings) { settings.source = kFaster; }},
      {"consumer", Bottleneck::consumer,
       [](Pipeline& changed) { changed.step.milliseconds *= kFaster; },
       [](ReplaySettings& settings) { settings.consumer = kFaster; }}};
  if (on_host) {
    all.push_back({"host_depth + 2", Bottleneck::balanced,
                   [&stats](Pipeline& changed) { changed.host_depth = stats.host_depth + 2; },
                   [](ReplaySettings& settings) { settings.host_depth += 2; }});
    all.push_back({"copy", Bottleneck::copy, [](Pipeline& changed) { changed.copy *= kFaster; },
                   [](ReplaySettings& settings) { settings.copy = kFaster; }});
  }
  if (pipeline.transforms)
    all.push_back({"transform", Bottleneck::transform,
                   [](Pipeline& changed) { changed.transform *= kFaster; },
                   [](ReplaySettings& settings) { settings.transform = kFaster; }});
  return all;
}

// ---- The report ---------------------------------------------------------------------------------

/// Errors as parts of what was measured.
class Errors {
 public:
  void add(double error) { all_.push_back(std::abs(error)); }
  const std::vector<double>& all() const { return all_; }
  double at(double part) const {
    if (all_.empty()) return 0;
    std::vector<double> sorted = all_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5)];
  }
  void print(const char* name) const {
    std::printf("  %-34s median %4.1f %%, 90th percentile %4.1f %% of %zu runs\n", name,
                100 * at(0.5), 100 * at(0.9), all_.size());
  }

 private:
  std::vector<double> all_;
};

struct Score {
  Errors own, repeated, changed;
  std::uint64_t cases = 0, unknown = 0, best = 0, stage = 0, advised = 0, helped = 0, disturbed = 0,
                far_ahead = 0;
};

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

/// The gain of one stage's time, as it was measured.
using Gains = std::vector<std::pair<Bottleneck, double>>;

double gain_of(const Gains& gains, Bottleneck stage) {
  for (const auto& [of, gain] : gains)
    if (of == stage) return gain;
  return 0;
}

/// No other stage's gain is noticeably larger.
bool is_right_stage(Bottleneck stage, const Gains& gains, double slots_gain) {
  constexpr double kAlike = 0.04;
  double most = 0, second = 0;
  for (const auto& [of, gain] : gains) {
    if (gain > most)
      second = std::exchange(most, gain);
    else
      second = std::max(second, gain);
  }
  if (stage == Bottleneck::balanced)  // Two have no time to spare.
    return most - second < 2 * kAlike || gain_of(gains, Bottleneck::consumer) > most - kAlike ||
           most < 2 * kAlike;
  double own = gain_of(gains, stage);
  if (stage == Bottleneck::waiting_for_data) own = gain_of(gains, Bottleneck::source);
  if (stage == Bottleneck::waiting_for_slot)
    own = std::max(slots_gain, gain_of(gains, Bottleneck::consumer));
  return own > most - kAlike;
}

/// What there was to go by.
void print_unknown(const Replay& replay, const Stats& stats) {
  std::size_t sources = 0, waits = 0, steps = 0;
  for (const auto& batch : stats.recent->batches) {
    sources += batch.device.source >= 0;
    waits += batch.device.wait >= 0;
    steps += batch.device.step >= 0;
  }
  if (std::getenv("PENSTOCK_VERDICT_RECORDS") != nullptr)
    for (const auto& [batch, times, device] : stats.recent->batches) {
      std::printf("    %llu:", static_cast<unsigned long long>(batch));
      const auto begin = stats.recent->batches.front().times.opened;
      for (const auto stamp : {times.wanted, times.opened, times.filled, times.staged, times.asked,
                               times.taken, times.released})
        std::printf(" %.2f", static_cast<double>(stamp - begin) / 1e6);
      std::printf(" |");
      for (const auto time : {times.source_time(), device.source, device.copy, device.transform,
                              device.wait, device.step})
        std::printf(" %.2f", static_cast<double>(time) / 1e6);
      std::printf(times.first_of_worker() ? " first\n" : "\n");
    }
  const auto& costs = replay.costs();
  if (costs.all().empty()) return;
  double work = 0, device = 0, host = 0;
  for (const auto& cost : costs.all()) {
    work += cost.source / 1e6 / static_cast<double>(costs.all().size());
    device += cost.stream_work / 1e6 / static_cast<double>(costs.all().size());
    host += cost.thread_work / 1e6 / static_cast<double>(costs.all().size());
  }
  std::printf(
      "    measured %.2f ms, replayed %.2f ms; %zu batches, timed: %zu sources, %zu waits, %zu "
      "steps; a source %.2f ms, device %.2f, host %.2f, loop %d\n",
      costs.period() / 1e6, milliseconds(replay.run(replay.present()).period),
      stats.recent->batches.size(), sources, waits, steps, work, device, host,
      static_cast<int>(costs.loop().waits));
}

void judge(std::uint64_t seed, std::uint64_t number, Score& score) {
  const Pipeline pipeline = draw(seed, number);
  const Outcome outcome = run_calmly(pipeline);
  const Stats& stats = outcome.stats;
  const Verdict verdict = stats.verdict();
  std::printf("%3llu %s\n    %.2f ms, overslept %.2f; %s %s: %s\n",
              static_cast<unsigned long long>(number), pipeline.text().c_str(),
              outcome.truth.period, outcome.truth.overslept, to_string(verdict.stage),
              to_string(verdict.kind), verdict.sentence.c_str());
  INFO("seed " << seed << ", case " << number << ": " << pipeline.text() << '\n' << stats);
  CHECK(verdict.stage == stats.bottleneck());
  REQUIRE(stats.recent != nullptr);
  Replay replay(stats.recent->batches.size());
  if (!replay.load(stats.recent->batches, Judge::shape_of(stats))) {
    ++score.unknown;
    // Where nothing holds the host up, it is far ahead of the device: then it has to say so.
    const bool says_ahead = verdict.sentence.find("far ahead") != std::string::npos;
    score.far_ahead += says_ahead;
    const bool on_device =
        pipeline.source == Source::device || pipeline.source == Source::device_queues;
    CHECK(says_ahead <= (on_device && pipeline.loop == penstock::test::Loop::queues));
    print_unknown(replay, stats);
    CHECK(verdict.kind == VerdictKind::too_early);
    CHECK(verdict.enough_workers == 0);
    return;
  }
  bool calm = outcome.truth.overslept <= kDisturbed;
  // The changes, as they are and as they were foretold.
  Gains gains;
  Errors errors;
  double repeated = 0, slots_gain = 0, best = outcome.truth.period, named = 0;
  double foretold_best = milliseconds(replay.run(replay.present()).period);
  const double own = foretold_best / outcome.truth.period - 1;
  named = outcome.truth.period;
  for (const Change& change : changes(pipeline, stats)) {
    Pipeline changed = pipeline;
    change.pipeline(changed);
    const Outcome after = run_calmly(changed);
    calm = calm && after.truth.overslept <= kDisturbed;
    ReplaySettings settings = replay.present();
    change.settings(settings);
    const double foretold = milliseconds(replay.run(settings).period);
    const double error = foretold / after.truth.period - 1;
    std::printf("    %-18s %.2f ms, foretold %.2f (%+.1f %%)%s\n", change.name, after.truth.period,
                foretold, 100 * error, after.truth.overslept <= kDisturbed ? "" : ", disturbed");
    if (std::string(change.name) == "repeated") {
      repeated = after.truth.period / outcome.truth.period - 1;
      continue;
    }
    errors.add(error);
    const double gain = 1 - after.truth.period / outcome.truth.period;
    if (change.stage != Bottleneck::balanced) {
      gains.emplace_back(change.stage, gain);
      continue;
    }
    if (std::string(change.name) == "device_depth + 1") slots_gain = gain;
    best = std::min(best, after.truth.period);
    if (foretold < 0.97 * foretold_best) {
      foretold_best = foretold;
      named = after.truth.period;
    }
  }
  const bool is_best = named <= 1.03 * best;
  const bool is_stage = is_right_stage(verdict.stage, gains, slots_gain);
  bool advised = false, helped = true;
  if (verdict.enough_workers + verdict.enough_host_depth + verdict.enough_device_depth > 0) {
    advised = true;
    Pipeline taken = pipeline;
    if (verdict.enough_workers > 0) taken.workers = verdict.enough_workers;
    if (verdict.enough_host_depth > 0) taken.host_depth = verdict.enough_host_depth;
    if (verdict.enough_device_depth > 0) taken.device_depth = verdict.enough_device_depth;
    const Outcome after = run_calmly(taken);
    calm = calm && after.truth.overslept <= kDisturbed;
    const double got = outcome.truth.period / after.truth.period - 1;
    helped = got > (verdict.times_faster - 1) / 2;
    std::printf("    taken: %.2f times as fast, foretold %.2f%s\n", got + 1, verdict.times_faster,
                helped ? "" : " WRONG ADVICE");
  }
  std::printf("    %s%s%s\n", is_best ? "" : "WRONG BEST ", is_stage ? "" : "WRONG STAGE ",
              calm ? "" : "left out: disturbed");
  std::fflush(stdout);
  if (!calm) {
    ++score.disturbed;
    return;
  }
  ++score.cases;
  score.own.add(own);
  score.repeated.add(repeated);
  for (const double error : errors.all()) score.changed.add(error);
  score.best += is_best;
  score.stage += is_stage;
  score.advised += advised;
  score.helped += advised && helped;
}

}  // namespace

TEST_CASE("the verdict foretells what changes of a pipeline give", "[verdict]") {
  const std::uint64_t seed = from_environment("PENSTOCK_VERDICT_SEED", 1);
  const std::uint64_t cases = from_environment("PENSTOCK_VERDICT_CASES", 200);
  Score score;
  const std::uint64_t first = from_environment("PENSTOCK_VERDICT_FIRST", 0);
  for (std::uint64_t number = 0; number < cases; ++number) judge(seed, first + number, score);
  const auto of = [](std::uint64_t part, std::uint64_t all) {
    return std::to_string(part) + " of " + std::to_string(all);
  };
  std::printf("seed %llu, %llu pipelines; left out: %llu disturbed, %llu too little to go by\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(score.disturbed),
              static_cast<unsigned long long>(score.unknown));
  score.own.print("period as it is, foretold");
  score.repeated.print("the same run, repeated");
  score.changed.print("period with one change, foretold");
  std::printf("  best of the settings named: %s; right stage: %s; advice that helped: %s\n",
              of(score.best, score.cases).c_str(), of(score.stage, score.cases).c_str(),
              of(score.helped, score.advised).c_str());
  // One wrong case, and one in so many.
  const auto few_wrong = [&](std::uint64_t right, std::uint64_t all, double part) {
    return static_cast<double>(all - right) <= std::max(1.0, part * static_cast<double>(all));
  };
  CHECK(few_wrong(score.best, score.cases, 0.03));
  CHECK(few_wrong(score.stage, score.cases, 0.02));
  CHECK(few_wrong(score.helped, score.advised, 0.03));
  CHECK(score.changed.at(0.9) <= std::max(0.06, score.repeated.at(0.9)));
  // What was too little to go by.
  CHECK(few_wrong(score.cases, cases - score.disturbed - score.far_ahead, 0.03));
}
