// SPDX-License-Identifier: Apache-2.0

// The replay of recorded batches, line by line of its recurrence: what each stage costs a pipeline
// that it limits, and what a changed setting then gives. All times are in milliseconds.

#include <penstock/detail/observe/replay.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/made_records.hpp"

using penstock::Bottleneck;
using penstock::detail::BatchTimes;
using penstock::detail::FinishedBatch;
using penstock::detail::LoopWaits;
using penstock::detail::Replay;
using penstock::detail::ReplayResult;
using penstock::detail::ReplaySettings;
using penstock::test::MadeLoop;
using penstock::test::MadePipeline;
using penstock::test::MadeSource;

namespace {

double period(const ReplayResult& result) {
  return std::chrono::duration<double, std::milli>(result.period).count();
}
Approx near(double value) {
  return Approx(value).epsilon(0.01).margin(0.005);
}

/// What a replay says of a pipeline that was recorded with its own settings.
class Replayed {
 public:
  explicit Replayed(const MadePipeline& pipeline, std::size_t batches = 96)
      : Replayed(pipeline.records(batches), pipeline.shape()) {}
  Replayed(const std::vector<FinishedBatch>& records, const penstock::detail::PipelineShape& shape)
      : replay_(256), loaded_(replay_.load(records, shape)) {}

  bool loaded() const { return loaded_; }
  const Replay& replay() const { return replay_; }
  ReplayResult present() const { return replay_.run(replay_.present()); }
  double now() const { return period(present()); }
  double share(Bottleneck stage) const {
    return replay_.shares().at(static_cast<std::size_t>(stage));
  }
  double with_workers(std::size_t workers) const {
    ReplaySettings settings = replay_.present();
    settings.workers = workers;
    return period(replay_.run(settings));
  }
  double with_blocks(std::size_t blocks) const {
    ReplaySettings settings = replay_.present();
    settings.host_depth = blocks;
    return period(replay_.run(settings));
  }
  double with_slots(std::size_t slots) const {
    ReplaySettings settings = replay_.present();
    settings.device_depth = slots;
    return period(replay_.run(settings));
  }
  double with_factor(double ReplaySettings::*stage, double factor) const {
    ReplaySettings settings = replay_.present();
    settings.*stage = factor;
    return period(replay_.run(settings));
  }

 private:
  Replay replay_;
  bool loaded_;
};

}  // namespace

TEST_CASE("a source that is too slow is as fast as its workers are many", "[replay]") {
  const Replayed slow({.fill = 10.0, .copy = 1.0, .step = 2.0});
  REQUIRE(slow.loaded());
  CHECK(slow.now() == near(10));
  CHECK(slow.present().starved == near(0.8));
  CHECK(slow.share(Bottleneck::source) == near(1));
  CHECK(slow.with_workers(2) == near(5));
  CHECK(slow.with_workers(4) == near(2.5));
  CHECK(slow.with_workers(5) == near(2));
  CHECK(slow.with_workers(8) == near(2));  // The consumer has no more time.
  CHECK(slow.with_blocks(20) == near(10));
  CHECK(slow.with_slots(5) == near(10));
  CHECK(slow.with_factor(&ReplaySettings::source, 0.5) == near(5));
  CHECK(slow.with_factor(&ReplaySettings::copy, 0.5) == near(10));
}

TEST_CASE("what a worker needs beside the source counts as the source", "[replay]") {
  const Replayed slow({.fill = 8.0, .copy = 1.0, .step = 2.0, .handover = 2.0});
  CHECK(slow.now() == near(10));
  CHECK(slow.with_factor(&ReplaySettings::source, 0.5) == near(6));
}

TEST_CASE("workers need a block each until its copy is done", "[replay]") {
  // Two blocks: one is filled for 6 ms while the other is copied for 1 ms.
  const MadePipeline few{.fill = 6.0, .copy = 3.0, .step = 1.0, .workers = 3, .host_depth = 2};
  const Replayed replayed(few);
  REQUIRE(replayed.loaded());
  CHECK(replayed.now() == near(4.5));  // 9 ms with one of two blocks
  CHECK(replayed.with_blocks(3) == near(3));
  CHECK(replayed.with_blocks(4) == near(3));
  CHECK(replayed.with_workers(4) == near(4.5));
  CHECK(replayed.with_blocks(1) == near(9));
}

TEST_CASE("copies come one after the other", "[replay]") {
  const Replayed bound({.fill = 1.0, .copy = 10.0, .step = 2.0});
  REQUIRE(bound.loaded());
  CHECK(bound.now() == near(10));
  CHECK(bound.share(Bottleneck::copy) == near(1));
  CHECK(bound.with_factor(&ReplaySettings::copy, 0.5) == near(5));
  CHECK(bound.with_factor(&ReplaySettings::copy, 0.1) == near(2));
  CHECK(bound.with_workers(4) == near(10));
  CHECK(bound.with_slots(4) == near(10));
}

TEST_CASE("copies that are timed a little long do not make the device late", "[replay]") {
  const MadePipeline bound{.fill = 1.0, .copy = 4.0, .step = 2.0, .loop = MadeLoop::waits};
  std::vector<FinishedBatch> records = bound.records(96);
  for (FinishedBatch& batch : records) batch.device.copy += 60'000;
  const Replayed replayed(records, bound.shape());
  REQUIRE(replayed.loaded());
  CHECK(replayed.replay().costs().loop().waits == LoopWaits::for_this_step);
  CHECK(replayed.share(Bottleneck::copy) > 0.9);
}

TEST_CASE("a transform keeps the copy stream, but not the block", "[replay]") {
  const Replayed bound({.fill = 1.0, .copy = 3.0, .transform = 7.0, .step = 2.0});
  REQUIRE(bound.loaded());
  CHECK(bound.now() == near(10));
  CHECK(bound.share(Bottleneck::copy) == near(0.3));
  CHECK(bound.share(Bottleneck::transform) == near(0.7));
  CHECK(bound.with_factor(&ReplaySettings::transform, 0.5) == near(6.5));
  // One block, which the worker has back before the transform.
  const Replayed single({.fill = 6.0, .copy = 3.0, .transform = 5.0, .step = 2.0, .host_depth = 1});
  CHECK(single.now() == near(9));
}

TEST_CASE("a copy waits for the readers of its slot", "[replay]") {
  // One slot: copy and step take turns.
  const Replayed turns({.fill = 1.0, .copy = 4.0, .step = 6.0, .device_depth = 1});
  REQUIRE(turns.loaded());
  CHECK(turns.now() == near(10));
  CHECK(turns.present().starved == near(0.4));
  CHECK(turns.share(Bottleneck::copy) == near(0.4));
  CHECK(turns.share(Bottleneck::waiting_for_slot) == Approx(0.6).epsilon(0.02));
  CHECK(turns.with_slots(2) == near(6));
  CHECK(turns.with_slots(3) == near(6));
  CHECK(turns.with_blocks(20) == near(10));
}

TEST_CASE("a batch is not staged before its slot's lease has ended on the host", "[replay]") {
  // The host works for 5 ms beside a stream that has done its 1 ms long before.
  const Replayed turns({.fill = 1.0,
                        .copy = 4.0,
                        .step = 1.0,
                        .host = 5.0,
                        .device_depth = 1,
                        .loop = MadeLoop::waits});
  REQUIRE(turns.loaded());
  CHECK(turns.now() == near(10));
  CHECK(turns.with_slots(2) == near(6));
}

TEST_CASE("a consumer that has all it needs is the limit", "[replay]") {
  for (const MadeLoop loop : {MadeLoop::queues, MadeLoop::waits}) {
    const Replayed bound({.fill = 1.0, .copy = 1.0, .step = 10.0, .loop = loop});
    REQUIRE(bound.loaded());
    CHECK(bound.now() == near(10));
    CHECK(bound.present().starved == near(0));
    CHECK(bound.share(Bottleneck::consumer) == near(1));
    CHECK(bound.with_workers(4) == near(10));
    CHECK(bound.with_slots(4) == near(10));
    CHECK(bound.with_factor(&ReplaySettings::consumer, 0.5) == near(5));
  }
}

TEST_CASE("of two stages that are at their limit none makes batches faster alone", "[replay]") {
  const Replayed both({.fill = 2.0, .copy = 0.1, .step = 2.0, .host = 0.0});
  REQUIRE(both.loaded());
  CHECK(both.share(Bottleneck::source) == Approx(0.02).margin(0.01));
  CHECK(both.share(Bottleneck::consumer) == Approx(0.02).margin(0.01));
  CHECK(both.share(Bottleneck::waiting_for_slot) == 0);
}

TEST_CASE("longer queues carry over what is uneven", "[replay]") {
  // One batch in eight takes 17 ms, the others 1: 3 in the mean, as the consumer.
  const auto bursts = [](std::size_t k) { return k % 8 == 7 ? 17.0 : 1.0; };
  const Replayed uneven({.fill = penstock::test::MadeTime(bursts),
                         .copy = 0.1,
                         .step = 3.0,
                         .host_depth = 2,
                         .device_depth = 2});
  REQUIRE(uneven.loaded());
  CHECK(uneven.now() > 4);
  CHECK(uneven.with_blocks(12) == near(3));
  CHECK(uneven.with_blocks(3) < uneven.now() - 0.1);
}

TEST_CASE("workers of per_sample share a batch", "[replay]") {
  const Replayed slow({.source = MadeSource::per_sample,
                       .fill = 8.0,
                       .copy = 0.5,
                       .step = 0.5,
                       .workers = 2,
                       .pieces = 8});
  REQUIRE(slow.loaded());
  CHECK(slow.now() == near(4));
  CHECK(slow.share(Bottleneck::source) == near(1));
  CHECK(slow.with_workers(1) == near(8));
  CHECK(slow.with_workers(4) == near(2));
  CHECK(slow.with_workers(8) == near(1));
  CHECK(slow.with_workers(3) == near(8.0 / 3));  // A piece of the next batch is begun meanwhile.
  // Whole batches of the same workers overlap, but no batch comes earlier than after 8 ms.
  const Replayed whole({.fill = 8.0, .copy = 0.5, .step = 0.5, .workers = 2, .host_depth = 1});
  CHECK(whole.now() == near(8.5));
  const Replayed shared({.source = MadeSource::per_sample,
                         .fill = 8.0,
                         .copy = 0.5,
                         .step = 0.5,
                         .workers = 2,
                         .pieces = 8,
                         .host_depth = 1});
  CHECK(shared.now() == near(4.5));
}

TEST_CASE("what the workers of per_sample need beside the source is shared too", "[replay]") {
  const Replayed slow({.source = MadeSource::per_sample,
                       .fill = 6.0,
                       .copy = 0.5,
                       .step = 0.5,
                       .handover = 2.0,
                       .workers = 2,
                       .pieces = 8});
  REQUIRE(slow.loaded());
  CHECK(slow.now() == near(4));
  CHECK(slow.with_workers(4) == near(2));
}

TEST_CASE("an on_device source writes the slots itself", "[replay]") {
  const bool queues = GENERATE(false, true);
  const Replayed slow({.source = MadeSource::on_device,
                       .fill = 6.0,
                       .step = 2.0,
                       .device_depth = 4,
                       .queues_on_device = queues});
  REQUIRE(slow.loaded());
  CHECK(slow.replay().costs().source_queues() == queues);
  CHECK(slow.now() == near(6));
  CHECK(slow.share(Bottleneck::source) == near(1));
  CHECK(slow.with_workers(2) == near(3));
  CHECK(slow.with_workers(3) == near(2));
  CHECK(slow.with_factor(&ReplaySettings::source, 0.5) == near(3));
  CHECK(slow.with_blocks(20) == near(6));
}

TEST_CASE("the slots of an on_device source are its room", "[replay]") {
  const bool queues = GENERATE(false, true);
  // One slot is written for 6 ms and read for 2.
  const Replayed single({.source = MadeSource::on_device,
                         .fill = 6.0,
                         .step = 2.0,
                         .host = 0.001,
                         .device_depth = 1,
                         .loop = MadeLoop::waits,
                         .queues_on_device = queues});
  REQUIRE(single.loaded());
  CHECK(single.now() == near(8));
  CHECK(single.share(Bottleneck::source) == near(0.75));
  CHECK(single.share(Bottleneck::waiting_for_slot) == near(0.25));
  CHECK(single.with_slots(2) == near(6));
  // Of more workers each needs one.
  const Replayed three({.source = MadeSource::on_device,
                        .fill = 6.0,
                        .step = 1.0,
                        .workers = 3,
                        .device_depth = 2,
                        .queues_on_device = queues});
  REQUIRE(three.loaded());
  CHECK(three.now() == near(queues ? 3.5 : 3));  // The next write waits for the readers.
  CHECK(three.with_slots(5) == near(2));
}

TEST_CASE("an on_device source that queues waits on the device for the slot's readers",
          "[replay]") {
  const Replayed turns({.source = MadeSource::on_device,
                        .fill = 6.0,
                        .step = 4.0,
                        .device_depth = 1,
                        .queues_on_device = true});
  REQUIRE(turns.loaded());
  CHECK(turns.now() == near(10));
  CHECK(turns.with_slots(2) == near(6));
}

TEST_CASE("a pause of the consumer is no part of the period", "[replay]") {
  MadePipeline pauses{.fill = 10.0, .copy = 1.0, .step = 2.0};
  pauses.pause = penstock::test::MadeTime([](std::size_t k) { return k % 40 == 39 ? 700.0 : 0.0; });
  const Replayed replayed(pauses, 128);
  REQUIRE(replayed.loaded());
  // What the workers have ready after a pause is delivered at once.
  CHECK(replayed.replay().costs().period() / 1e6 == Approx(10).epsilon(0.1));
  CHECK(replayed.now() == near(10));
  CHECK(replayed.with_workers(2) == near(5));
  pauses = {.fill = 1.0, .copy = 1.0, .step = 4.0, .loop = MadeLoop::waits};
  pauses.pause = penstock::test::MadeTime([](std::size_t k) { return k % 40 == 39 ? 700.0 : 0.0; });
  CHECK(Replayed(pauses, 128).now() == near(4.01));
}

TEST_CASE("of eight batches, the fewest for a replay, the first of a worker may be slow",
          "[replay]") {
  const MadePipeline pipeline{.fill = 1.0, .copy = 1.0, .step = 2.0};
  CHECK_FALSE(Replayed(pipeline, 7).loaded());
  const Replayed usual(pipeline, 8);
  REQUIRE(usual.loaded());
  std::vector<FinishedBatch> records = pipeline.records(8);
  records[3].times.work = 100'000'000 | BatchTimes::kFirstOfWorker;
  CHECK(Replayed(records, pipeline.shape()).now() == near(usual.now()));
  records[3].times.work = 100'000'000;
  CHECK(Replayed(records, pipeline.shape()).now() > 2 * usual.now());
}

TEST_CASE("a slow step now and then is no pause", "[replay]") {
  MadePipeline bursts{.fill = 0.4, .copy = 0.1, .loop = MadeLoop::waits};
  bursts.step = penstock::test::MadeTime([](std::size_t k) { return k % 8 == 7 ? 24.0 : 0.5; });
  const Replayed replayed(bursts);
  REQUIRE(replayed.loaded());
  CHECK(replayed.replay().costs().all().size() == 96);
  CHECK(replayed.now() == Approx(27.5 / 8 + 0.01).epsilon(0.02));
}

TEST_CASE("the loop waits for its step, for the last one, or for none", "[replay]") {
  const auto uneven =
      penstock::test::MadeTime([](std::size_t k) { return k % 3 == 0 ? 8.0 : 2.0; });
  const auto waits = [&](MadeLoop loop, double copy) {
    const MadePipeline pipeline{
        .fill = 1.0, .copy = copy, .step = uneven, .host = 0.5, .loop = loop};
    const Replayed replayed(pipeline);
    REQUIRE(replayed.loaded());
    return replayed.replay().costs().loop().waits;
  };
  for (const double copy : {0.1, 3.0}) {
    CHECK(waits(MadeLoop::queues, copy) == LoopWaits::for_nothing);
    CHECK(waits(MadeLoop::waits, copy) == LoopWaits::for_this_step);
  }
  CHECK(waits(MadeLoop::waits_for_last, 0.1) == LoopWaits::for_last_step);
}

TEST_CASE("one late copy beside uneven steps does not tell that the loop waits for nothing",
          "[replay]") {
  // One slot. All copies take as long but for one, before a step that happens to be short.
  const MadePipeline pipeline{
      .fill = 1.0,
      .copy = penstock::test::MadeTime([](std::size_t k) { return k == 56 ? 3.0 : 1.0; }),
      .step = penstock::test::MadeTime([](std::size_t k) { return k % 8 == 0 ? 1.0 : 5.0; }),
      .device_depth = 1,
      .loop = MadeLoop::waits};
  const Replayed replayed(pipeline);
  REQUIRE(replayed.loaded());
  CHECK(replayed.replay().costs().loop().waits == LoopWaits::for_this_step);
  CHECK(replayed.now() == near(5.5));
  CHECK(replayed.with_slots(2) == near(4.5));
}

TEST_CASE("host work behind a wait is not done beside the device's", "[replay]") {
  const MadePipeline one{
      .fill = 1.0, .copy = 0.5, .step = 4.0, .host = 3.0, .loop = MadeLoop::waits};
  CHECK(Replayed(one).now() == near(7));
  const MadePipeline none{.fill = 1.0, .copy = 0.5, .step = 4.0, .host = 3.0};
  CHECK(Replayed(none).now() == near(4));
}

TEST_CASE("a lease that is replaced ends when the next one is there", "[replay]") {
  // Two slots, of which the copy has one only after the next batch was taken.
  const MadePipeline replaces{.fill = 1.0, .copy = 4.0, .step = 6.0, .loop = MadeLoop::replaces};
  const Replayed replayed(replaces);
  REQUIRE(replayed.loaded());
  CHECK(replayed.replay().costs().loop().later_calls == 1);
  CHECK(replayed.replay().costs().loop().ends_early);
  CHECK(replayed.now() == near(6));
  CHECK(replayed.with_slots(3) == near(6));
  const MadePipeline holds{.fill = 1.0, .copy = 4.0, .step = 6.0, .loop = MadeLoop::holds_two};
  const Replayed two(holds);
  REQUIRE(two.loaded());
  CHECK(two.replay().costs().loop().later_calls == 1);
  CHECK_FALSE(two.replay().costs().loop().ends_early);
  CHECK(two.now() == near(10.01));
  CHECK(two.share(Bottleneck::waiting_for_slot) == Approx(0.6).epsilon(0.02));
  CHECK(two.with_slots(3) == near(6.01));
}

TEST_CASE("the waits for slots tell when one of two leases ends", "[replay]") {
  // A loop that only queues ends the older one soon behind the next step.
  const MadePipeline behind{
      .fill = 1.0, .copy = 4.0, .step = 6.0, .lease_end = 0.1, .loop = MadeLoop::queues_two};
  const Replayed replayed(behind);
  REQUIRE(replayed.loaded());
  CHECK(replayed.replay().costs().loop().later_calls == 1);
  CHECK_FALSE(replayed.replay().costs().loop().ends_early);
  CHECK(replayed.now() == near(10));
  CHECK(replayed.with_slots(3) == near(6));
}

TEST_CASE("a stage has the larger share where half of its time gains more", "[replay]") {
  // The source is late now and then by more than the queues hold: a little faster, it gains as much
  // as the consumer, but no more where it is much faster.
  const auto bursts = [](std::size_t k) { return k % 8 < 2 ? 10.0 : 1.0; };
  const Replayed uneven({.fill = std::function<double(std::size_t)>(bursts),
                         .copy = 0.1,
                         .step = 3.83,
                         .host_depth = 2,
                         .device_depth = 3,
                         .loop = MadeLoop::waits});
  REQUIRE(uneven.loaded());
  CHECK(uneven.with_factor(&ReplaySettings::consumer, 0.5) <
        0.9 * uneven.with_factor(&ReplaySettings::source, 0.5));
  CHECK(uneven.share(Bottleneck::waiting_for_slot) > 2 * uneven.share(Bottleneck::source));
}

TEST_CASE("the time to queue a copy is between two of them", "[replay]") {
  const Replayed slow({.fill = 1.0, .copy = 1.0, .step = 1.0, .issue = 5.0});
  REQUIRE(slow.loaded());
  CHECK(slow.now() == near(5));
  CHECK(slow.share(Bottleneck::copy) == near(1));
  CHECK(slow.with_workers(4) == near(5));
}

TEST_CASE("streams in turn work at the same time", "[replay]") {
  const Replayed two({.fill = 1.0, .copy = 1.0, .step = 6.0, .device_depth = 4, .streams = 2});
  REQUIRE(two.loaded());
  CHECK(two.now() == near(3));
  CHECK(two.with_factor(&ReplaySettings::consumer, 0.5) == near(1.5));
}

TEST_CASE("unordered batches do not wait for an older one", "[replay]") {
  // Of two workers one has 16 ms to do for every fourth batch.
  const auto uneven =
      penstock::test::MadeTime([](std::size_t k) { return k % 4 == 0 ? 16.0 : 1.0; });
  MadePipeline pipeline{.fill = uneven, .copy = 0.1, .step = 0.1, .workers = 2, .host_depth = 2};
  const auto records = pipeline.records(96);
  penstock::detail::PipelineShape shape = pipeline.shape();
  Replay replay(256);
  replay.load(records, shape);
  const double ordered = period(replay.run(replay.present()));
  shape.setup.ordered = false;
  replay.load(records, shape);
  const double unordered = period(replay.run(replay.present()));
  CHECK(unordered == Approx(19.0 / 4 / 2).epsilon(0.15));
  CHECK(unordered < 0.75 * ordered);
}

TEST_CASE("device times of some batches are enough", "[replay]") {
  const Replayed some({.fill = 10.0, .copy = 1.0, .step = 2.0, .one_timed_in = 16});
  REQUIRE(some.loaded());
  CHECK(some.with_workers(8) == near(2));
  // Of none: what the consumer's stream works is what is left of the period.
  const Replayed none({.fill = 1.0, .copy = 1.0, .step = 7.0, .one_timed_in = 0});
  REQUIRE(none.loaded());
  CHECK(none.now() == near(7));
  CHECK(none.with_workers(2) == near(7));
  const Replayed slow({.fill = 10.0, .copy = 1.0, .step = 2.0, .one_timed_in = 0});
  REQUIRE(slow.loaded());
  CHECK(slow.now() == near(10));
}

TEST_CASE("a worker's first batch says nothing of the others", "[replay]") {
  MadePipeline pipeline{.fill = 10.0, .copy = 1.0, .step = 2.0};
  std::vector<FinishedBatch> records = pipeline.records(64);
  records[30].times.work += 200'000'000;
  records[30].times.work |= penstock::detail::BatchTimes::kFirstOfWorker;
  const Replayed replayed(records, pipeline.shape());
  CHECK(replayed.now() == near(10));
}

TEST_CASE("the start of a run, where queues are empty, is left out", "[replay]") {
  MadePipeline pipeline{.fill = 10.0, .copy = 1.0, .step = 2.0};
  std::vector<FinishedBatch> records = pipeline.records(64);
  records[0].times.work |= penstock::detail::BatchTimes::kFirstOfWorker;
  const Replayed replayed(records, pipeline.shape());
  CHECK(replayed.replay().costs().all().size() == 64 - 10);
}

TEST_CASE("the period of few batches is that of whole rounds of the workers", "[replay]") {
  // Five workers that began together hand on five batches every 10 ms.
  const MadePipeline rounds{.fill = 10.0, .copy = 0.01, .step = 0.01, .workers = 5};
  const Replayed replayed(rounds, GENERATE(11U, 12U, 14U, 17U));
  CHECK(replayed.replay().costs().period() / 1e6 == near(2));
}

TEST_CASE("batches of other settings tell what they cost, too", "[replay]") {
  const auto made = [](int workers) {
    return MadePipeline{.source = MadeSource::per_sample,
                        .fill = 16.0,
                        .copy = 0.1,
                        .step = 1.0,
                        .handover = 0.1,
                        .workers = workers,
                        .pieces = 16};
  };
  const MadePipeline now = made(4);
  std::vector<FinishedBatch> records = made(1).records(40);
  const auto change = records.back().times.released;
  for (FinishedBatch batch : now.records(12)) {
    for (auto stamp :
         {&BatchTimes::wanted, &BatchTimes::opened, &BatchTimes::filled, &BatchTimes::staged,
          &BatchTimes::asked, &BatchTimes::taken, &BatchTimes::released})
      batch.times.*stamp += change;
    records.push_back(batch);
  }
  penstock::detail::PipelineShape shape = now.shape();
  shape.since = change;
  const Replayed all(records, shape), latest(now);
  CHECK(all.now() == Approx(latest.now()).epsilon(0.03));
  CHECK(all.with_workers(8) == Approx(latest.with_workers(8)).epsilon(0.05));
}

TEST_CASE("what a replay cannot explain is too little to go by", "[replay]") {
  const MadePipeline pipeline{.fill = 10.0, .copy = 1.0, .step = 2.0};
  std::vector<FinishedBatch> records = pipeline.records(64);
  CHECK(Replayed(records, pipeline.shape()).loaded());
  // Every batch comes 5 ms later than the one before, and nobody was busy.
  for (std::size_t k = 0; k < records.size(); ++k) {
    auto& times = records[k].times;
    const auto more = static_cast<penstock::detail::Ticks>(k) * 5'000'000;
    for (auto* stamp : {&times.wanted, &times.opened, &times.filled, &times.staged, &times.asked,
                        &times.taken, &times.released})
      *stamp += more;
  }
  CHECK_FALSE(Replayed(records, pipeline.shape()).loaded());
  CHECK_FALSE(Replayed(pipeline.records(7), pipeline.shape()).loaded());
  CHECK(Replayed(pipeline.records(8), pipeline.shape()).loaded());
  CHECK_FALSE(Replayed({}, pipeline.shape()).loaded());
}

TEST_CASE("a replay takes more batches than it was made for", "[replay]") {
  const MadePipeline pipeline{.fill = 10.0, .copy = 1.0, .step = 2.0, .workers = 2};
  Replay small(8);
  REQUIRE(small.load(pipeline.records(96), pipeline.shape()));
  CHECK(small.costs().all().size() == 96);
  CHECK(small.run(small.present()).period == Replayed(pipeline).present().period);
}

TEST_CASE("a replay allocates only when it is made", "[replay]") {
  const MadePipeline pipeline{.fill = 10.0, .copy = 1.0, .step = 2.0};
  const auto records = pipeline.records(64);
  const auto shape = pipeline.shape();
  Replay replay(64);
  const auto before = penstock::test::allocations_of_this_thread();
  replay.load(records, shape);
  replay.run(replay.present());
  CHECK(penstock::test::allocations_of_this_thread() == before);
}
