// SPDX-License-Identifier: Apache-2.0

// The settings that a verdict calls enough: workers, depths, and the memory that they take.

#include <penstock/stats.hpp>
#include <penstock/tuning.hpp>

#include <chrono>
#include <memory>
#include <utility>

#include "support/catch.hpp"
#include "support/made_stats.hpp"

using namespace std::chrono_literals;
using penstock::Bottleneck;
using penstock::Stats;
using penstock::Verdict;
using penstock::VerdictKind;
using penstock::test::says;
using penstock::test::timed;
using penstock::test::timed_on_device;

TEST_CASE("a source at its limit needs as many workers as the next stage has time for",
          "[verdict]") {
  const Verdict verdict = timed({990, 100, 250}).verdict();
  CHECK(verdict.stage == Bottleneck::source);
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.period == 10ms);
  CHECK(verdict.source == 9900us);
  CHECK(verdict.copy == 1ms);
  CHECK(verdict.consumer == 2500us);
  CHECK(verdict.starved == 0.75);
  CHECK(verdict.enough_workers == 9);      // 19.8 ms of one worker in 0.9 x 2.5 ms
  CHECK(verdict.enough_host_depth == 11);  // a block for each, and one for each slot
  CHECK(says(verdict, "9 workers with host_depth 11 would be enough"));
  Stats follows = timed({990, 100, 250});
  follows.setup.deepens = true;
  CHECK(follows.verdict().enough_host_depth == 0);
  CHECK(says(follows.verdict(), "9 workers would be enough"));
  follows.tuning = std::make_shared<penstock::Tuning>();
  CHECK(says(follows.verdict(), "9 workers (Tune::workers) would be enough"));
  // The copy may leave less time than the consumer does.
  CHECK(timed({990, 500, 250}).verdict().enough_workers == 5);
  // One more, at least.
  CHECK(timed({990, 100, 940}).verdict().enough_workers == 3);
}

TEST_CASE("more workers do not help alone where the consumer holds all slots", "[verdict]") {
  Stats stats = timed({990, 100, 250});
  stats.leased = 2;
  stats.host_bytes = 400;
  stats.device_bytes = 20;
  const Verdict verdict = stats.verdict();
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.enough_workers == 9);
  CHECK(verdict.enough_device_depth == 3);
  CHECK(verdict.enough_host_depth == 12);
  CHECK(verdict.more_bytes == 810);
  CHECK(says(verdict, "9 workers with host_depth 12 and device_depth 3 (810 B more) would be"));
  CHECK(says(verdict, "it holds all device slots now"));
  // The ring follows by itself, and is told as memory all the same.
  stats.setup.deepens = true;
  CHECK(stats.verdict().enough_host_depth == 0);
  CHECK(stats.verdict().more_bytes == 810);
  CHECK(says(stats.verdict(), "9 workers with device_depth 3 (810 B more) would be enough"));
  stats.leased = 1;
  CHECK(stats.verdict().enough_device_depth == 0);
  CHECK(stats.verdict().more_bytes == 700);
  CHECK(says(stats.verdict(), "9 workers (700 B more) would be enough"));
  CHECK_FALSE(says(stats.verdict(), "slots"));
  // A run of two batches needs no third slot.
  stats.leased = 2;
  stats.setup.per_sample = true;
  stats.setup.batches = 2;
  CHECK(stats.verdict().enough_device_depth == 0);
  // The block of the new slot counts, too, where memory is short: 8 blocks.
  stats.setup = {.batches = 1000, .host_limit = 800};
  CHECK(stats.verdict().enough_workers == 5);
  CHECK(stats.verdict().enough_host_depth == 8);
}

TEST_CASE("without device times nobody knows how many workers are enough", "[verdict]") {
  Stats stats = timed({990, 0, 0});
  stats.device.reset();
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::source);
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.enough_workers == 0);
  CHECK(verdict.copy == 0ns);
  CHECK(verdict.consumer == 0ns);
  CHECK(says(verdict, "more workers (device_times tells how many)"));
  stats.tuning = std::make_shared<penstock::Tuning>();
  CHECK(says(stats.verdict(), "more workers (Tune::workers; device_times tells how many)"));
}

TEST_CASE("who waits though nobody is at the limit needs a deeper ring", "[verdict]") {
  const Verdict verdict = timed({600, 100, 800}).verdict();
  CHECK(verdict.stage == Bottleneck::consumer);
  CHECK(verdict.kind == VerdictKind::deeper_ring);
  CHECK(verdict.enough_host_depth == 9);  // 4, and what 35 ms are in batches of 8
  CHECK(verdict.enough_device_depth == 0);
  CHECK(says(verdict, "host_depth 9 in place of 4"));
  // All workers have a block, and each slot.
  Stats stats = timed({600, 100, 800});
  stats.workers = 16;
  stats.source.busy *= 8;
  stats.source.waiting_for_room *= 8;
  CHECK(stats.verdict().enough_host_depth == 18);
  // One more, at least.
  stats = timed({600, 100, 800});
  stats.device->longest_wait = 1ns;
  stats.underruns = 100;
  CHECK(stats.verdict().enough_host_depth == 5);
  // Where the longest wait is unknown, four more.
  stats.device->longest_wait = 0ns;
  CHECK(stats.verdict().enough_host_depth == 8);
  CHECK_FALSE(says(stats.verdict(), "at a time"));
  // Batches that are late one after the other: 200 ms of waits in 4 underruns.
  stats = timed({600, 100, 800});
  stats.underruns = 4;
  CHECK(stats.verdict().enough_host_depth == 11);
  stats.host_depth = 3;  // Workers also waited for each other's blocks.
  CHECK(stats.verdict().enough_host_depth == 8);
}

TEST_CASE("no more slots are advised than the device has memory for", "[verdict]") {
  Stats stats = timed_on_device(990, 250, 0);
  stats.device_bytes = 200;  // of two slots
  stats.setup.device_limit = 599;
  CHECK(stats.verdict().enough_workers == 3);
  CHECK(stats.verdict().enough_device_depth == 5);
  CHECK(stats.verdict().more_bytes == 300);
  CHECK(says(stats.verdict(), "are all that the bytes of the device's memory allow; 9 would be"));
  stats.setup.device_limit = 499;  // The two workers have all that there is.
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
  CHECK(says(stats.verdict(), "bytes of the device's memory allow no more workers"));
  // An on_device source that waits for slots.
  stats = timed_on_device(600, 500, 0);
  stats.device_bytes = 200;
  CHECK(stats.verdict().enough_device_depth > 3);
  stats.setup.device_limit = 300;
  CHECK(stats.verdict().enough_device_depth == 3);
  // Copies that do, and a consumer that holds all slots.
  stats = timed({600, 100, 800});
  std::swap(stats.copy.waiting_for_input, stats.copy.waiting_for_room);
  stats.device_bytes = 200;
  stats.setup.device_limit = 400;
  CHECK(stats.verdict().enough_device_depth == 4);
  stats.setup.device_limit = 200;
  CHECK(stats.verdict().enough_device_depth == 0);
  stats = timed({990, 100, 250});
  stats.leased = 2;
  CHECK(stats.verdict().enough_device_depth == 3);
  stats.device_bytes = stats.setup.device_limit = 200;
  CHECK(stats.verdict().enough_device_depth == 0);
}

TEST_CASE("a single slot comes before the ring on the host", "[verdict]") {
  Stats stats = timed({100, 490, 510});
  stats.device_depth = 1;
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::consumer);
  CHECK(verdict.kind == VerdictKind::more_slots);
  CHECK(verdict.enough_device_depth == 2);
  CHECK(verdict.enough_host_depth == 0);
  CHECK(says(verdict, "device_depth 2"));
}

TEST_CASE("an on_device source at its limit needs workers, and a slot for each", "[verdict]") {
  const Verdict verdict = timed_on_device(990, 250, 0).verdict();
  CHECK(verdict.stage == Bottleneck::source);
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.enough_workers == 9);        // 19.8 ms of one worker in 0.9 x 2.5 ms
  CHECK(verdict.enough_device_depth == 11);  // one for each, one leased, one ready
  CHECK(verdict.enough_host_depth == 0);
  CHECK(says(verdict, "9 workers with device_depth 11 would be enough"));
  // Where there are slots enough, nothing is said of them.
  Stats stats = timed_on_device(990, 250, 0);
  stats.device_depth = 11;
  CHECK(stats.verdict().enough_device_depth == 0);
  CHECK_FALSE(says(stats.verdict(), "device_depth"));
  // The host alone cannot tell whether the consumer's stream waits too.
  stats.device.reset();
  CHECK(stats.verdict().kind == VerdictKind::more_workers);
  CHECK(says(stats.verdict(), "device_times"));
}

TEST_CASE("an on_device source that only queues its work is judged by who waits for that work",
          "[verdict]") {
  // Of the time of the consumer's stream, 70 % goes by while the source's work runs.
  const Verdict verdict = timed_on_device(20, 250, 700).verdict();
  CHECK(verdict.stage == Bottleneck::source);
  CHECK(verdict.kind == VerdictKind::more_slots);
  CHECK(verdict.enough_device_depth == 16);  // 2, and what 35 ms are in batches of 2.5
  CHECK(verdict.enough_host_depth == 0);
  CHECK(verdict.enough_workers == 0);
  CHECK(verdict.times_smaller == 0);
  CHECK(says(verdict, "device_depth 16 in place of 2"));
  // The workers are not in the source, whatever the consumer's stream waits for.
  CHECK(timed_on_device(20, 50, 950).verdict().kind == VerdictKind::more_slots);
  // Each worker has a slot, one is leased, and one is ready.
  Stats stats = timed_on_device(20, 250, 700);
  stats.workers = 30;
  CHECK(stats.verdict().enough_device_depth == 32);
  // A single slot is no exception.
  stats = timed_on_device(20, 800, 100);
  stats.device_depth = 1;
  stats.device->longest_wait = 1ns;
  CHECK(stats.verdict().stage == Bottleneck::consumer);
  CHECK(stats.verdict().kind == VerdictKind::more_slots);
  CHECK(stats.verdict().enough_device_depth == 4);
}

TEST_CASE("workers are bounded by cores, batches and memory", "[verdict]") {
  Stats stats = timed({990, 100, 250});
  stats.setup.cores = 4;
  stats.worker_cpu = 990ms;  // of 1980 ms
  CHECK(stats.verdict().enough_workers == 8);
  stats.worker_cpu = 1921ms;  // Four compute on 3.9 cores, a fifth has none.
  CHECK(stats.verdict().enough_workers == 4);
  stats.worker_cpu = 990ms;
  stats.setup.cores = 1;
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
  CHECK(says(stats.verdict(), "2 workers compute on 1 cores"));
  stats.worker_cpu = 10ms;  // Who waits needs no core.
  CHECK(stats.verdict().enough_workers == 9);
  CHECK(says(stats.verdict(), "the source waits 99 % of its time"));
  stats.setup.batches = 6;
  CHECK(stats.verdict().enough_workers == 6);
  stats.setup.batches = 1000;
  stats.host_bytes = 400;
  stats.setup.host_limit = 700;  // 7 blocks: 5 workers
  CHECK(stats.verdict().enough_workers == 5);
  CHECK(stats.verdict().enough_host_depth == 7);
  CHECK(stats.verdict().more_bytes == 300);
  CHECK(says(stats.verdict(),
             "5 workers with host_depth 7 (300 B more) are all that the bytes of "
             "max_host_bytes allow; 9 would be enough for its 2.50 ms"));
  stats.setup.host_limit = 450;
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
  CHECK(says(stats.verdict(), "the bytes of max_host_bytes allow no more workers"));
  stats.setup.cores = 4;
  stats.worker_cpu = 1000ms;  // The cores would do for eight.
  CHECK(says(stats.verdict(), "the bytes of max_host_bytes allow no more workers"));
  stats.setup.host_limit = 0;
  stats.setup.batches = 6;
  CHECK(says(stats.verdict(), "6 workers with host_depth 6 (200 B more) are all that the batches"));
  stats.setup.batches = 2;
  CHECK(says(stats.verdict(), "the batches of the run allow no more workers"));
  stats.setup = {.batches = 1000, .host_limit = 450};
  stats.worker_cpu = 10ms;
  stats.setup.per_sample = true;  // They share the blocks.
  CHECK(stats.verdict().enough_workers == 9);
}

namespace {
/// With these bounds.
std::shared_ptr<const penstock::Tuning> tuning(int workers, std::size_t host_depth,
                                               std::size_t device_depth) {
  penstock::Tuning tuning;
  tuning.most_workers = workers;
  tuning.most_host_depth = host_depth;
  tuning.most_device_depth = device_depth;
  return std::make_shared<const penstock::Tuning>(tuning);
}
}  // namespace

TEST_CASE("with tune, the number of workers has changed, and memory is reserved", "[verdict]") {
  // 7 workers at the end, and all of them busy; but fewer for most of the time.
  Stats stats = timed({990, 100, 250});
  stats.workers = 7;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  stats.tuning = tuning(7, 40, 4);
  CHECK(stats.verdict().stage == Bottleneck::source);
  CHECK(stats.verdict().kind == VerdictKind::more_workers);
  // 40 blocks are allocated, though 4 are in use.
  stats = timed({600, 100, 800});
  stats.tuning = tuning(2, 8, 4);
  stats.host_bytes = 800;
  CHECK(stats.verdict().enough_host_depth == 9);
  CHECK(stats.verdict().more_bytes == 100);
  CHECK(says(stats.verdict(), "host_depth 9 in place of 4 (Tune::host_bytes) (100 B more)"));
  stats.setup.host_limit = 850;
  CHECK(stats.verdict().enough_host_depth == 8);
  stats = timed_on_device(600, 700, 0);
  stats.tuning = tuning(2, 0, 4);
  stats.device_bytes = 400;
  CHECK(says(stats.verdict(), "(Tune::device_slots)"));
  CHECK(stats.verdict().more_bytes == 100 * (stats.verdict().enough_device_depth - 4));
}

TEST_CASE("a type is named that the program has", "[verdict]") {
  Stats stats = timed({100, 990, 300});
  stats.setup.batch_bytes = 800;
  stats.setup.as_uint8_bytes = 100;
  stats.setup.as_half_integers_bytes = 800;
  CHECK(says(stats.verdict(), "uint8 in place of float, "));
  stats.setup.doubles = true;
  CHECK(says(stats.verdict(), "uint8 in place of double, "));
}

TEST_CASE("a depth is within the run and the memory", "[verdict]") {
  Stats stats = timed({600, 100, 800});
  stats.setup.batches = 7;
  CHECK(stats.verdict().enough_host_depth == 7);
  stats.setup.batches = 4;
  CHECK(stats.verdict().enough_host_depth == 0);
  stats.setup.batches = 0;
  stats.host_bytes = 400;
  stats.setup.host_limit = 600;
  CHECK(stats.verdict().enough_host_depth == 6);
  CHECK(stats.verdict().more_bytes == 200);
  CHECK(says(stats.verdict(), "host_depth 6 in place of 4 (200 B more)"));
  stats.setup.host_limit = 400;
  CHECK(stats.verdict().enough_host_depth == 0);
  CHECK(says(stats.verdict(), "max_host_bytes"));
}

TEST_CASE("copies that wait for slots need slots, not a ring", "[verdict]") {
  Stats stats = timed({600, 100, 800});
  std::swap(stats.copy.waiting_for_input, stats.copy.waiting_for_room);
  CHECK(stats.verdict().kind == VerdictKind::more_slots);
  CHECK(stats.verdict().enough_device_depth == 7);  // 2, and what 35 ms are in batches of 8
  stats.setup.batches = 5;
  CHECK(stats.verdict().enough_device_depth == 5);
  stats.setup.batches = 0;
  // The consumer has all of them: one more.
  stats.leased = 2;
  stats.device_bytes = 200;
  CHECK(stats.verdict().stage == Bottleneck::waiting_for_slot);
  CHECK(stats.verdict().enough_device_depth == 3);
  CHECK(says(stats.verdict(), "holds all device slots"));
  CHECK(
      says(stats.verdict(), "device_depth 3 in place of 2 and host_depth 5 in place of 4 (100 B"));
  // As far as the limit on host memory goes.
  stats.host_bytes = 400;
  stats.setup.host_limit = 400;
  CHECK(stats.verdict().enough_device_depth == 3);
  CHECK(stats.verdict().enough_host_depth == 0);
  CHECK(says(stats.verdict(), "device_depth 3 in place of 2 (100 B more)"));
  stats.setup.deepens = true;  // A slot more would be a block more.
  CHECK(stats.verdict().enough_device_depth == 0);
  stats.setup.host_limit = 600;
  CHECK(stats.verdict().enough_device_depth == 3);
  // It does not miss them as long as it does not starve.
  stats.device->consuming = 860ms;
  stats.device->awaiting_batch = 140ms;
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
}
