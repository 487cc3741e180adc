// SPDX-License-Identifier: Apache-2.0

// The verdict on made records: which stage it names, what it says to change, and what that gives.
// tests/system/verdict/ holds it against pipelines that run. All times are in milliseconds.

#include <penstock/stats.hpp>
#include <penstock/tuning.hpp>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/made_records.hpp"
#include "support/made_stats.hpp"

using namespace std::chrono_literals;
using penstock::Bottleneck;
using penstock::Gain;
using penstock::RecentBatches;
using penstock::Stats;
using penstock::Verdict;
using penstock::VerdictKind;
using penstock::detail::BatchTimes;
using penstock::detail::FinishedBatch;
using penstock::test::MadeLoop;
using penstock::test::MadePipeline;
using penstock::test::MadeSource;
using penstock::test::MadeTime;
using penstock::test::says;

namespace {

const Gain& gain(const Verdict& verdict, VerdictKind kind) {
  for (const Gain& gain : verdict.gains)
    if (gain.kind == kind) return gain;
  FAIL("there is no such gain");
  return verdict.gains[0];
}

/// The same records, after they were changed.
template <class Change>
Stats with_records(Stats stats, Change change) {
  auto recent = std::make_shared<RecentBatches>(*stats.recent);
  change(recent->batches);
  stats.recent = std::move(recent);
  return stats;
}

/// Every batch was later than the one before by 6 ms more, and nobody was busy.
Stats unexplained() {
  return with_records(
      MadePipeline{.fill = 4.0, .copy = 1.0, .step = 2.0}.stats(),
      [](std::vector<FinishedBatch>& batches) {
        for (std::size_t k = 0; k < batches.size(); ++k) {
          BatchTimes& times = batches[k].times;
          for (auto* stamp : {&times.wanted, &times.opened, &times.filled, &times.staged,
                              &times.asked, &times.taken, &times.released})
            *stamp += static_cast<penstock::detail::Ticks>(k) * 6'000'000;
        }
      });
}

}  // namespace

TEST_CASE("the verdict says how many workers are enough, and what they give", "[verdict]") {
  Stats stats = MadePipeline{.fill = 10.0, .copy = 1.0, .step = 2.5}.stats();
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::source);
  CHECK(stats.bottleneck() == Bottleneck::source);
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.enough_workers == 4);
  CHECK(verdict.enough_host_depth == 0);
  CHECK(verdict.enough_device_depth == 0);
  CHECK(verdict.times_faster == Approx(4).epsilon(0.02));
  CHECK(verdict.period.count() == Approx(10e6).epsilon(0.01));
  CHECK(verdict.source.count() == Approx(10e6).epsilon(0.01));
  CHECK(verdict.copy.count() == Approx(1e6).epsilon(0.01));
  CHECK(verdict.consumer.count() == Approx(2.5e6).epsilon(0.01));
  CHECK(verdict.starved == Approx(0.75).epsilon(0.02));
  CHECK(says(verdict,
             "the workers (1) cannot keep up, 10.00 ms a batch, and the consumer waits 75 %"));
  CHECK(says(verdict,
             "4 workers: 4.0 times as fast (10.0 -> 2.5 ms a batch); deeper queues: nothing"));
}

TEST_CASE("more workers never promise more than their number", "[verdict]") {
  for (const std::size_t batches : {8u, 9u, 12u, 40u}) {
    const Verdict verdict =
        MadePipeline{.source = MadeSource::on_device, .fill = 300.0, .step = 0.1, .device_depth = 3}
            .stats(batches)
            .verdict();
    INFO(batches << " batches: " << verdict.sentence);
    REQUIRE(verdict.kind == VerdictKind::more_workers);
    CHECK(verdict.times_faster > 1.5);
    CHECK(verdict.times_faster <= 1.01 * verdict.enough_workers);
  }
}

TEST_CASE("the gains are told of every kind of change, the largest first", "[verdict]") {
  const Verdict verdict = MadePipeline{.fill = 10.0, .copy = 1.0, .step = 2.5}.stats().verdict();
  CHECK(verdict.gains[0].kind == VerdictKind::more_workers);
  CHECK(verdict.gains[0].workers == 4);
  CHECK(verdict.gains[0].times_faster == verdict.times_faster);
  CHECK(verdict.gains[1].kind == VerdictKind::faster_source);
  CHECK(gain(verdict, VerdictKind::faster_source).times_faster == Approx(2).epsilon(0.02));
  CHECK(gain(verdict, VerdictKind::more_depth).times_faster == Approx(1).epsilon(0.01));
  CHECK(gain(verdict, VerdictKind::faster_copy).times_faster == Approx(1).epsilon(0.01));
  for (std::size_t i = 1; i < verdict.gains.size(); ++i)
    CHECK(verdict.gains[i - 1].times_faster >= verdict.gains[i].times_faster);
}

TEST_CASE("workers come with the blocks that they need", "[verdict]") {
  const MadePipeline few{.fill = 10.0, .copy = 1.0, .step = 2.5, .host_depth = 2};
  Stats stats = few.stats();
  const Verdict verdict = stats.verdict();
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.enough_workers == 4);
  CHECK(verdict.enough_host_depth >= 4);
  CHECK(verdict.more_bytes == 100 * (verdict.enough_host_depth - 2));
  CHECK(says(verdict, "4 workers with host_depth "));
  CHECK(says(verdict, " B more)"));
  // A host_depth that is not set follows by itself, and is told as memory.
  stats.setup.deepens = true;
  CHECK(stats.verdict().enough_host_depth == 0);
  CHECK(stats.verdict().more_bytes == 400);  // 4 workers and 2 slots
}

TEST_CASE("workers come with a slot where the consumer holds all of them", "[verdict]") {
  const Verdict verdict =
      MadePipeline{.fill = 22.0, .copy = 10.0, .step = 10.0, .device_depth = 1}.stats().verdict();
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.enough_workers == 3);
  CHECK(verdict.enough_device_depth == 2);
}

TEST_CASE("workers are bounded by cores, batches and memory", "[verdict]") {
  Stats stats = MadePipeline{.fill = 20.0, .copy = 1.0, .step = 2.5, .workers = 2}.stats();
  CHECK(stats.verdict().enough_workers == 8);
  stats.setup.cores = 3;
  stats.worker_cpu = stats.source.busy / 2;  // They compute half of the time.
  CHECK(stats.verdict().enough_workers == 6);
  CHECK(says(stats.verdict(), "all that the cores allow"));
  stats.setup.cores = 1;
  CHECK(stats.verdict().kind == VerdictKind::faster_source);
  CHECK(says(stats.verdict(), "compute on 1 cores"));
  CHECK(says(stats.verdict(), "a source twice as fast: 2.0 times as fast"));
  stats.worker_cpu = stats.source.busy / 100;  // Who waits needs no core.
  CHECK(stats.verdict().enough_workers == 8);
  CHECK(says(stats.verdict(), "the source waits 99 % of its time"));
  stats.setup.batches = 6;
  CHECK(stats.verdict().enough_workers == 6);
  CHECK(says(stats.verdict(), "all that the batches of the run allow"));
  stats.setup.batches = 1000;
  stats.setup.host_limit = 800;  // 8 blocks: 6 workers and 2 slots
  CHECK(stats.verdict().enough_workers == 6);
  stats.setup.host_limit = 450;
  CHECK(stats.verdict().kind == VerdictKind::faster_source);
  CHECK(says(stats.verdict(), "the bytes of max_host_bytes allow no more workers"));
  stats.setup.host_limit = 0;
  stats.setup.unbounded = true;
  stats.worker_cpu = stats.source.busy;
  CHECK(stats.verdict().kind == VerdictKind::faster_source);
  CHECK(says(stats.verdict(), "it is a stream, which one worker reads"));
}

TEST_CASE("copies that are too slow need fewer bytes", "[verdict]") {
  Stats stats = MadePipeline{.fill = 1.0, .copy = 10.0, .step = 2.5}.stats();
  stats.copy.bytes = stats.copy.batches * 1'000'000;
  Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::copy);
  CHECK(verdict.kind == VerdictKind::faster_copy);
  CHECK(verdict.times_smaller == Approx(4).epsilon(0.05));
  CHECK(verdict.times_faster == Approx(2).epsilon(0.02));
  CHECK(verdict.enough_workers == 0);
  CHECK(says(verdict, "10.00 ms a batch of 976.6 KiB (95.4 MiB/s)"));
  CHECK(says(verdict, "half of the bytes: 2.0 times as fast"));
  CHECK(says(verdict, "that a DeviceTransform expands"));
  CHECK_FALSE(says(verdict, "uint8"));
  // A type is named that the program has.
  stats.setup.batch_bytes = 800;
  stats.setup.as_uint8_bytes = 200;
  stats.setup.as_half_integers_bytes = 800;
  CHECK(says(stats.verdict(), "uint8 in place of float, where 8 bits are enough, makes it 4.0"));
  stats.setup.doubles = true;
  CHECK(says(stats.verdict(), "uint8 in place of double, "));
  stats.setup.as_uint8_bytes = 790;  // A few floats among other bytes are not worth a word.
  CHECK_FALSE(says(stats.verdict(), "uint8"));
  stats.setup.as_half_integers_bytes = 400;
  CHECK(says(stats.verdict(), "integers of half the width, where the values fit, make it 2.0"));
}

TEST_CASE("a transform that is too slow is told from its copy", "[verdict]") {
  const Verdict verdict =
      MadePipeline{.fill = 1.0, .copy = 1.0, .transform = 9.0, .step = 2.5}.stats().verdict();
  CHECK(verdict.stage == Bottleneck::transform);
  CHECK(verdict.kind == VerdictKind::faster_copy);
  CHECK(verdict.times_smaller == 0);
  CHECK(says(verdict, "the DeviceTransform cannot keep up, 9.00 ms a batch, beside 1.00 ms"));
  CHECK(says(verdict, "twice as fast: 1.8 times as fast"));
}

TEST_CASE("a consumer that hardly waits needs nothing", "[verdict]") {
  Stats stats = MadePipeline{.fill = 4.0, .copy = 1.0, .step = 10.0}.stats();
  CHECK(stats.verdict().stage == Bottleneck::consumer);
  CHECK(stats.verdict().kind == VerdictKind::nothing);
  CHECK(stats.verdict().times_faster == 1);
  CHECK(says(stats.verdict(),
             "compute-bound: the consumer takes 10.00 ms a batch, the pipeline 4.00 ms"));
  stats = MadePipeline{.fill = 10.0, .copy = 1.0, .step = 9.8}.stats();
  CHECK(stats.verdict().stage == Bottleneck::balanced);
  CHECK(stats.verdict().kind == VerdictKind::nothing);
  CHECK(says(stats.verdict(), "balanced"));
}

TEST_CASE("stages that wait for each other in turn need deeper queues", "[verdict]") {
  const MadeTime bursts([](std::size_t k) { return k % 8 == 7 ? 17.0 : 1.0; });
  Stats stats = MadePipeline{.fill = bursts, .copy = 0.1, .step = 3.0, .host_depth = 2}.stats();
  const Verdict verdict = stats.verdict();
  CHECK(verdict.kind == VerdictKind::more_depth);
  CHECK(verdict.enough_workers == 0);
  CHECK(verdict.enough_host_depth > 3);
  CHECK(verdict.times_faster > 1.2);
  CHECK(verdict.more_bytes ==
        100 * (verdict.enough_host_depth - 2) +
            10 * (verdict.enough_device_depth > 0 ? verdict.enough_device_depth - 2 : 0));
  CHECK(
      says(verdict, "host_depth " + std::to_string(verdict.enough_host_depth) + " in place of 2"));
  // As far as the run and the memory go.
  stats.setup.batches = 4;
  CHECK(stats.verdict().enough_host_depth <= 4);
  stats.setup.batches = 0;
  stats.setup.host_limit = 300;
  CHECK(stats.verdict().enough_host_depth <= 3);
  stats.setup.host_limit = 0;
  stats.tuning = std::make_shared<penstock::Tuning>();
  CHECK(says(stats.verdict(), "(Tune::host_bytes)"));
}

TEST_CASE("a consumer that holds all slots needs another one", "[verdict]") {
  const Verdict verdict =
      MadePipeline{.fill = 1.0, .copy = 4.0, .step = 6.0, .device_depth = 1}.stats().verdict();
  CHECK(verdict.stage == Bottleneck::waiting_for_slot);
  CHECK(verdict.kind == VerdictKind::more_depth);
  CHECK(verdict.enough_device_depth == 2);
  CHECK(verdict.times_faster == Approx(10.0 / 6).epsilon(0.02));
  CHECK(verdict.more_bytes == 10);
  CHECK(says(verdict, "the consumer holds all device slots"));
  CHECK(says(verdict, "device_depth 2 in place of 1"));
}

TEST_CASE("an on_device source needs workers, and a slot for each", "[verdict]") {
  const bool queues = GENERATE(false, true);
  Stats stats = MadePipeline{.source = MadeSource::on_device,
                             .fill = 10.0,
                             .step = 2.6,
                             .device_depth = 3,
                             .queues_on_device = queues}
                    .stats();
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::source);
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.enough_workers == 4);
  CHECK(verdict.enough_device_depth > 3);
  CHECK(verdict.enough_host_depth == 0);
  CHECK(verdict.times_faster > 3.5);
  for (const char* word : {"ring", "host_depth", "copy", "uint8"}) CHECK_FALSE(says(verdict, word));
  stats.setup.device_limit = 35;  // no more than the three slots there are
  CHECK(stats.verdict().enough_device_depth == 0);
}

TEST_CASE("a stream whose source hardly computes waits for its data", "[verdict]") {
  Stats stats = MadePipeline{.fill = 10.0, .copy = 1.0, .step = 2.5}.stats();
  stats.setup.unbounded = true;
  stats.worker_cpu = stats.source.busy / 5;
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::waiting_for_data);
  CHECK(verdict.kind == VerdictKind::nothing);
  CHECK(verdict.enough_workers == 0);
  CHECK(says(verdict, "waiting for data: the source waits 80 % of its time, 10.00 ms a batch"));
  CHECK_FALSE(says(verdict, "workers"));
}

TEST_CASE("one late batch asks for nothing", "[verdict]") {
  const MadeTime once([](std::size_t k) { return k == 60 ? 200.0 : 1.0; });
  const Verdict verdict = MadePipeline{.fill = once, .copy = 0.1, .step = 2.0}.stats().verdict();
  CHECK(verdict.kind == VerdictKind::nothing);
  CHECK(verdict.enough_host_depth == 0);
  CHECK(verdict.enough_workers == 0);
  CHECK(says(verdict, "one batch came 199.00 ms late"));
  // Of two of them neither is the one.
  const MadeTime twice([](std::size_t k) { return k == 40 || k == 90 ? 200.0 : 1.0; });
  CHECK_FALSE(
      says(MadePipeline{.fill = twice, .copy = 0.1, .step = 2.0}.stats().verdict(), "one batch"));
}

TEST_CASE("fewer than eight batches are too early to judge by", "[verdict]") {
  const MadePipeline pipeline{.fill = 10.0, .copy = 1.0, .step = 2.5};
  CHECK(pipeline.stats(7).verdict().kind == VerdictKind::too_early);
  CHECK(says(pipeline.stats(7).verdict(), "too early to tell: fewer than 8 batches"));
  CHECK(pipeline.stats(8).verdict().kind == VerdictKind::more_workers);
  CHECK(Stats().verdict().kind == VerdictKind::too_early);
  CHECK(Stats().verdict().stage == Bottleneck::balanced);
}

TEST_CASE("what a replay cannot explain gets no advice", "[verdict]") {
  Stats stats = unexplained();
  const Verdict verdict = stats.verdict();
  CHECK(verdict.kind == VerdictKind::too_early);
  CHECK(verdict.enough_workers == 0);
  CHECK(verdict.times_faster == 1);
  for (const Gain& gain : verdict.gains) CHECK(gain.times_faster == 1);
  CHECK(says(verdict, "too little to go by"));
  CHECK(says(verdict, to_string(verdict.stage)));
  stats.setup.second_stream = true;
  CHECK(says(stats.verdict(), "also_used_on"));
}

TEST_CASE("a source of small reads is told so", "[verdict]") {
  Stats stats = MadePipeline{.fill = 10.0, .copy = 1.0, .step = 2.5}.stats();
  stats.worker_cpu = stats.source.busy;
  const auto calls = static_cast<std::uint64_t>(stats.worker_cpu.count() / 2000);  // one in 2 us
  stats.source_reads = penstock::ReadCounts{.calls = calls, .bytes = 16 * calls};
  CHECK(says(stats.verdict(), "reads of 16 bytes"));
  CHECK(says(stats.verdict(), "one in 2.0 us of its computing: read many rows by one call"));
  stats.setup.per_sample = true;
  CHECK(says(stats.verdict(), "map the file (MappedRecords)"));
  stats.source_reads = penstock::ReadCounts{.calls = calls, .bytes = 1024 * calls};
  CHECK_FALSE(says(stats.verdict(), "reads of"));
  stats.source_reads = penstock::ReadCounts{.calls = calls / 4, .bytes = 4 * calls};
  CHECK_FALSE(says(stats.verdict(), "reads of"));
}

TEST_CASE("a verdict is the same of the same numbers", "[verdict]") {
  const Stats stats = MadePipeline{.fill = 10.0, .copy = 1.0, .step = 2.5}.stats();
  const Stats copy = stats;
  CHECK(copy.verdict().sentence == stats.verdict().sentence);
  std::ostringstream text;
  text << stats;
  CHECK(text.str().find("verdict: " + stats.verdict().sentence) != std::string::npos);
}
