// SPDX-License-Identifier: Apache-2.0

// The rules of the verdict, one by one, on made-up numbers. tests/verdict/ holds them against
// pipelines that run.

#include <penstock/stats.hpp>

#include <chrono>
#include <sstream>
#include <string>
#include <utility>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using penstock::Bottleneck;
using penstock::DeviceTimes;
using penstock::Stats;
using penstock::Verdict;
using penstock::VerdictKind;

namespace {

/// Parts of a second in which the stages work, in per mille.
struct PerMille {
  int source, copy, consumer;
};

/// 100 batches in a second, timed on the device; of two workers, a megabyte each.
Stats timed(PerMille loads) {
  Stats stats;
  stats.workers = 2;
  stats.host_depth = 4;
  stats.device_depth = 2;
  const auto ms = [](int part) { return std::chrono::milliseconds(part); };
  stats.source = {.busy = 2 * ms(loads.source),
                  .waiting_for_room = 2 * ms(1000 - loads.source),
                  .batches = 100,
                  .bytes = 100'000'000};
  stats.copy = {.busy = ms(loads.copy),
                .waiting_for_input = ms(1000 - loads.copy),
                .batches = 100,
                .bytes = 100'000'000};
  stats.consumer = {.busy = 10ms, .waiting_for_input = 990ms, .batches = 101};
  stats.device = DeviceTimes{.copies = 100,
                             .batches = 100,
                             .consuming = ms(loads.consumer),
                             .awaiting_batch = ms(1000 - loads.consumer),
                             .longest_wait = 35ms};
  return stats;
}

/// The same with an on_device source, which copies nothing. `awaiting_copy`: of the time that the
/// consumer's stream waits, what it waits for work that is queued.
Stats timed_on_device(int source, int consumer, int awaiting_copy) {
  Stats stats = timed({source, 0, consumer});
  stats.host_depth = 0;
  stats.copy = {.waiting_for_input = 1s};
  stats.device->copies = 0;
  stats.device->awaiting_copy = std::chrono::milliseconds(awaiting_copy);
  stats.device->awaiting_batch -= stats.device->awaiting_copy;
  return stats;
}

bool says(const Verdict& verdict, const std::string& part) {
  INFO(verdict.sentence);
  return verdict.sentence.find(part) != std::string::npos;
}

}  // namespace

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
  // The copy may leave less time than the consumer does.
  CHECK(timed({990, 500, 250}).verdict().enough_workers == 5);
  // One more, at least.
  CHECK(timed({990, 100, 940}).verdict().enough_workers == 3);
}

TEST_CASE("a source is at its limit above nine tenths of its time", "[verdict]") {
  CHECK(timed({901, 100, 830}).verdict().kind == VerdictKind::more_workers);
  CHECK(timed({900, 100, 830}).verdict().kind == VerdictKind::deeper_ring);
  CHECK(timed({900, 100, 830}).verdict().stage == Bottleneck::source);
}

TEST_CASE("a stage is at its limit, too, if longer queues would not halve the consumer's waits",
          "[verdict]") {
  // Always busy, the source would be 1.11 times as fast, and the consumer wait 37 % of its time.
  CHECK(timed({900, 100, 570}).verdict().kind == VerdictKind::more_workers);
  CHECK(timed({801, 100, 250}).verdict().kind == VerdictKind::more_workers);
  CHECK(timed({800, 100, 250}).verdict().kind == VerdictKind::deeper_ring);
  CHECK(timed({100, 801, 250}).verdict().kind == VerdictKind::smaller_bytes);
  CHECK(timed({100, 801, 750}).verdict().kind == VerdictKind::deeper_ring);
}

TEST_CASE("more workers do not help alone where the consumer holds all slots", "[verdict]") {
  Stats stats = timed({990, 100, 250});
  stats.setup.most_leased = 2;
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
  stats.setup.most_leased = 1;
  CHECK(stats.verdict().enough_device_depth == 0);
  CHECK(stats.verdict().more_bytes == 700);
  CHECK(says(stats.verdict(), "9 workers (700 B more) would be enough"));
  CHECK_FALSE(says(stats.verdict(), "slots"));
  // A run of two batches needs no third slot.
  stats.setup.most_leased = 2;
  stats.setup.per_sample = true;
  stats.setup.batches = 2;
  CHECK(stats.verdict().enough_device_depth == 0);
  // The block of the new slot counts, too, where memory is short: 8 blocks.
  stats.setup = {.batches = 1000, .host_limit = 800, .most_leased = 2};
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
  CHECK(says(verdict, "device_times"));
}

TEST_CASE("a copy at its limit needs smaller bytes, and over four times it is the bus",
          "[verdict]") {
  const Verdict verdict = timed({100, 990, 300}).verdict();
  CHECK(verdict.stage == Bottleneck::copy);
  CHECK(verdict.kind == VerdictKind::smaller_bytes);
  CHECK(verdict.times_smaller == Approx(3.3));
  CHECK(says(verdict, "3.3 times smaller"));
  CHECK(says(verdict, "9.90 ms a batch of 976.6 KiB (96.3 MiB/s)"));
  CHECK(timed({250, 1000, 100}).verdict().kind == VerdictKind::smaller_bytes);  // 4 times
  CHECK(timed({249, 1000, 100}).verdict().kind == VerdictKind::bus_bound);
  CHECK(says(timed({100, 990, 110}).verdict(), "bus-bound"));
  // Not at its limit, it waits for others by turns.
  CHECK(timed({100, 900, 830}).verdict().kind == VerdictKind::deeper_ring);
}

TEST_CASE("without device times nobody knows how small a batch has to be", "[verdict]") {
  Stats stats = timed({100, 990, 0});
  stats.device.reset();
  CHECK(stats.verdict().kind == VerdictKind::smaller_bytes);
  CHECK(stats.verdict().times_smaller == 0);
  CHECK(says(stats.verdict(), "device_times"));
}

TEST_CASE("a consumer that hardly waits is compute-bound", "[verdict]") {
  const Verdict verdict = timed({500, 100, 950}).verdict();
  CHECK(verdict.stage == Bottleneck::consumer);
  CHECK(verdict.kind == VerdictKind::compute_bound);
  CHECK(says(verdict, "takes 9.50 ms a batch, the pipeline 5.00 ms"));
  CHECK(timed({901, 100, 950}).verdict().kind == VerdictKind::balanced);
  CHECK(timed({100, 901, 950}).verdict().kind == VerdictKind::balanced);
  CHECK(timed({901, 100, 950}).bottleneck() == Bottleneck::balanced);
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
  CHECK(stats.verdict().enough_host_depth == 5);
  // Where the longest wait is unknown, four more.
  stats.device->longest_wait = 0ns;
  CHECK(stats.verdict().enough_host_depth == 8);
  CHECK_FALSE(says(stats.verdict(), "at a time"));
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

TEST_CASE("an on_device source that is fast enough bounds nothing", "[verdict]") {
  CHECK(timed_on_device(100, 970, 20).verdict().kind == VerdictKind::compute_bound);
  // It may be busy because it waits for the readers of its slot.
  CHECK(timed_on_device(990, 970, 20).verdict().kind == VerdictKind::compute_bound);
  Stats stats = timed_on_device(100, 0, 0);
  stats.device.reset();
  stats.consumer = {.busy = 990ms, .waiting_for_input = 10ms, .batches = 101};
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
  CHECK(says(stats.verdict(), "device_times"));  // Its stream may wait all the same.
}

TEST_CASE("of an on_device source nothing is said about copies or the ring", "[verdict]") {
  for (int source = 0; source <= 1000; source += 50)
    for (int consumer = 0; consumer <= 1000; consumer += 50)
      for (const bool on_device : {true, false}) {
        Stats stats = timed_on_device(source, consumer, (1000 - consumer) / 2);
        if (!on_device) stats.device.reset();
        const Verdict verdict = stats.verdict();
        CHECK(verdict.stage != Bottleneck::copy);
        CHECK(verdict.kind != VerdictKind::deeper_ring);
        CHECK(verdict.enough_host_depth == 0);
        for (const char* word : {"ring", "host_depth", "bytes", "copy", "uint8"})
          CHECK_FALSE(says(verdict, word));
      }
}

TEST_CASE("the table of an on_device source has no copies and no pinned memory", "[stats]") {
  std::ostringstream text;
  text << timed_on_device(20, 250, 700);
  CHECK(text.str().find("a device slot") != std::string::npos);
  for (const char* part : {"\ncopy", "pinned", "room in the ring"})
    CHECK(text.str().find(part) == std::string::npos);
}

TEST_CASE("a transform at its limit is told from its copy", "[verdict]") {
  Stats stats = timed({100, 50, 200});
  stats.setup.transforms = true;
  stats.transform = {.busy = 930ms, .batches = 100};
  stats.copy.waiting_for_input = 20ms;
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::transform);
  CHECK(verdict.kind == VerdictKind::faster_transform);
  CHECK(verdict.transform == 9300us);
  CHECK(verdict.copy == 500us);
  CHECK(says(verdict, "9.30 ms a batch, beside 0.50 ms for the copy"));
  // The copy has the time that the transform leaves of the next stage's.
  stats.copy.busy = 800ms;
  stats.transform.busy = 190ms;
  stats.copy.waiting_for_input = 10ms;
  stats.device->consuming = 590ms;
  CHECK(stats.verdict().stage == Bottleneck::copy);
  CHECK(stats.verdict().times_smaller == Approx(2));
  CHECK(says(stats.verdict(), "beside 1.90 ms for the DeviceTransform"));
  // Together they are at the limit, alone neither is.
  stats.copy.busy = 480ms;
  stats.transform.busy = 500ms;
  CHECK(stats.verdict().kind == VerdictKind::faster_transform);
  stats.copy.waiting_for_input = 300ms;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
}

TEST_CASE("a narrower type is named where there is a field of a wide one", "[verdict]") {
  Stats stats = timed({100, 990, 300});
  CHECK_FALSE(says(stats.verdict(), "uint8"));
  CHECK(says(stats.verdict(), "that a DeviceTransform expands"));
  stats.setup.batch_bytes = stats.setup.as_uint8_bytes = stats.setup.as_half_integers_bytes = 1000;
  CHECK_FALSE(says(stats.verdict(), "uint8"));
  CHECK_FALSE(says(stats.verdict(), "integers"));
  stats.setup.as_half_integers_bytes = 500;
  CHECK(
      says(stats.verdict(), "integers of half the width, where the values fit, make it 2.0 times"));
  stats.setup.as_uint8_bytes = 400;
  CHECK(says(stats.verdict(),
             "uint8 in place of float, where 8 bits are enough, makes it 2.5 times"));
  stats.setup.as_uint8_bytes = 990;  // A few floats among other bytes are not worth a word.
  CHECK_FALSE(says(stats.verdict(), "uint8"));
  stats.setup.as_half_integers_bytes = 1000;
  stats.setup.transforms = true;
  CHECK_FALSE(says(stats.verdict(), "DeviceTransform expands"));
}

TEST_CASE("a source of a stream that computes little waits for its data", "[verdict]") {
  Stats stats = timed({990, 100, 250});
  stats.workers = 1;
  stats.source.busy /= 2;
  stats.source.waiting_for_room /= 2;
  stats.setup.unbounded = true;
  stats.worker_cpu = 200ms;
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::waiting_for_data);
  CHECK(verdict.kind == VerdictKind::waiting_for_data);
  CHECK(says(verdict, "waiting for data: the source waits 80 % of its time, 9.90 ms a batch"));
  CHECK(verdict.enough_workers == 0);
  // Where it computes, another worker cannot be had all the same.
  stats.worker_cpu = 900ms;
  CHECK(stats.verdict().stage == Bottleneck::source);
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
  stats.worker_cpu = 0ms;  // unknown
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
}

TEST_CASE("workers are bounded by cores, batches and memory", "[verdict]") {
  Stats stats = timed({990, 100, 250});
  stats.setup.cores = 4;
  stats.worker_cpu = 990ms;  // of 1980 ms
  CHECK(stats.verdict().enough_workers == 8);
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
  CHECK(says(stats.verdict(), "5 workers with host_depth 7 (300 B more)"));
  stats.setup.host_limit = 450;
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
  CHECK(says(stats.verdict(), "max_host_bytes"));
  stats.setup.per_sample = true;  // They share the blocks.
  CHECK(stats.verdict().enough_workers == 9);
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
  stats.setup.most_leased = 2;
  stats.device_bytes = 200;
  CHECK(stats.verdict().stage == Bottleneck::waiting_for_slot);
  CHECK(stats.verdict().enough_device_depth == 3);
  CHECK(says(stats.verdict(), "holds all device slots"));
  CHECK(says(stats.verdict(), "device_depth 3 in place of 2 (100 B more)"));
  // It does not miss them as long as it does not starve.
  stats.device->consuming = 860ms;
  stats.device->awaiting_batch = 140ms;
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
}

TEST_CASE("a single wait is told as such", "[verdict]") {
  Stats stats = timed({600, 100, 800});
  stats.device->longest_wait = 170ms;  // of 200
  const Verdict verdict = stats.verdict();
  CHECK(verdict.kind == VerdictKind::one_late_batch);
  CHECK(verdict.stage == Bottleneck::consumer);
  CHECK(verdict.enough_host_depth == 0);
  CHECK(verdict.starved == 0.2);
  CHECK(says(verdict, "one batch came 170.00 ms late"));
  CHECK(stats.bottleneck() == Bottleneck::consumer);
  // The worker was held up for as long: it is not too slow.
  stats = timed({950, 100, 800});
  stats.device->longest_wait = stats.longest_fill = 170ms;
  CHECK(stats.verdict().kind == VerdictKind::one_late_batch);
  CHECK(stats.verdict().source < 9ms);
  // A wait as long as batches take is none of these.
  stats.device->longest_wait = 101ms;
  stats.source.busy *= 10;
  CHECK(stats.verdict().kind == VerdictKind::more_workers);
  // Nor are two.
  stats = timed({600, 100, 800});
  stats.device->longest_wait = 100ms;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  CHECK(stats.verdict().enough_host_depth == 17);
  // Without it the consumer starves all the same: the numbers are of the rest.
  stats = timed({600, 100, 300});
  stats.device->longest_wait = 400ms;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  CHECK(stats.verdict().starved == 0.5);
  CHECK(stats.verdict().enough_host_depth == 8);  // How long the others were is unknown.
  stats.device->longest_wait = 800ms;             // Of another interval.
  CHECK(stats.verdict().starved == 0.7);
}

TEST_CASE("without device times a single wait is taken out of the samples, too", "[verdict]") {
  Stats stats = timed({600, 100, 0});
  stats.device.reset();
  stats.consumer = {.busy = 700ms, .waiting_for_input = 300ms, .batches = 101};
  stats.longest_wait = 200ms;
  stats.waits = {.batches = 50, .waiting = 190ms};
  CHECK(stats.verdict().kind == VerdictKind::one_late_batch);
  CHECK(says(stats.verdict(), "one batch came 200.00 ms late"));
  // The host waits for the device, too, and far longer.
  stats.consumer.waiting_for_input = 600ms;
  CHECK(stats.verdict().kind == VerdictKind::one_late_batch);
  // The others waited as long.
  stats.waits.waiting = 310ms;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  stats.consumer.waiting_for_input = 300ms;
  // It was not sampled: what the others waited remains.
  stats.waits.waiting = 90ms;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
}

TEST_CASE("short runs and loops that queue far ahead are judged by the device's pace",
          "[verdict]") {
  Stats stats = timed({990, 100, 0});
  stats.device.reset();
  // The workers never waited; but a batch came out in 5 ms.
  stats.copy = {.busy = 10ms,
                .waiting_for_input = 40ms,
                .waiting_for_room = 45ms,
                .batches = 10,
                .timed = 10,
                .bytes = 1000};
  stats.source = {.busy = 20ms, .batches = 10};
  stats.consumer.batches = 10;
  stats.waits = {.batches = 10, .waiting = 1ms};
  CHECK(stats.verdict().period == 1ms + 9444444ns);
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
  CHECK(stats.verdict().starved < 0.02);
  // What the stream was found to wait, and not what the host did.
  stats.waits.waiting = 60ms;
  CHECK(stats.verdict().starved == Approx(0.57).margin(0.01));
}

TEST_CASE("an on_device source is judged by its work on the device", "[verdict]") {
  Stats stats = timed_on_device(20, 250, 700);
  stats.device_source = {.timed = 50, .busy = 980ms, .batches = 99, .span = 990ms};
  // 19.6 ms for each, of two workers in 10 ms.
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::source);
  CHECK(verdict.kind == VerdictKind::more_workers);
  CHECK(verdict.source == 9800us);
  CHECK(verdict.enough_workers == 9);
  // Below the limit more slots would not help it.
  stats.device_source.busy = 800ms;
  CHECK(stats.verdict().stage == Bottleneck::source);
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
  CHECK(says(stats.verdict(), "less on the device"));
  // Workers that block do need slots.
  stats.source.busy = 1600ms;
  CHECK(stats.verdict().kind == VerdictKind::more_slots);
}

TEST_CASE("no stage is named that waits for over half of its time", "[verdict]") {
  CHECK(timed({499, 300, 200}).bottleneck() == Bottleneck::balanced);
  CHECK(timed({499, 300, 200}).verdict().kind == VerdictKind::deeper_ring);
  CHECK(timed({500, 300, 200}).bottleneck() == Bottleneck::source);
  CHECK(timed({300, 500, 200}).bottleneck() == Bottleneck::copy);
  CHECK(timed({200, 300, 500}).bottleneck() == Bottleneck::consumer);
  // Whatever the numbers.
  for (int source = 0; source <= 1000; source += 50)
    for (int copy = 0; copy <= 1000; copy += 50)
      for (int consumer = 0; consumer <= 1000; consumer += 50) {
        const Stats stats = timed({source, copy, consumer});
        const int load = stats.bottleneck() == Bottleneck::source     ? source
                         : stats.bottleneck() == Bottleneck::copy     ? copy
                         : stats.bottleneck() == Bottleneck::consumer ? consumer
                                                                      : 1000;
        if (load < 500) FAIL(source << ' ' << copy << ' ' << consumer);
      }
}

TEST_CASE("of few batches nothing is said", "[verdict]") {
  CHECK(Stats{}.verdict().kind == VerdictKind::too_early);
  CHECK(Stats{}.bottleneck() == Bottleneck::balanced);
  Stats stats = timed({990, 100, 250});
  stats.consumer.batches = 7;
  CHECK(stats.verdict().kind == VerdictKind::too_early);
  CHECK(stats.verdict().stage == Bottleneck::source);
  CHECK(says(stats.verdict(), "too early"));
  stats.consumer.batches = 8;
  CHECK(stats.verdict().kind == VerdictKind::more_workers);
}

TEST_CASE("the host waits in next() while the device has work: the looks tell", "[verdict]") {
  Stats stats = timed({100, 0, 0});
  stats.device.reset();
  // The copy waits for the slot's readers: the device is busy.
  stats.copy.waiting_for_input = 50ms;
  stats.copy.waiting_for_room = 950ms;
  CHECK(stats.bottleneck() == Bottleneck::consumer);
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
  // There is nothing to copy, and the source waits for a third of its time: by turns.
  stats = timed({660, 0, 0});
  stats.device.reset();
  CHECK(stats.bottleneck() == Bottleneck::source);
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  // A few looks that found nothing to copy mean nothing.
  stats = timed({300, 0, 0});
  stats.device.reset();
  stats.copy.waiting_for_input = 100ms;
  stats.copy.waiting_for_room = 900ms;
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
}

TEST_CASE("every kind of verdict has a name", "[verdict]") {
  for (const auto& [kind, name] : {std::pair{VerdictKind::too_early, "too_early"},
                                   std::pair{VerdictKind::more_workers, "more_workers"},
                                   std::pair{VerdictKind::deeper_ring, "deeper_ring"},
                                   std::pair{VerdictKind::more_slots, "more_slots"},
                                   std::pair{VerdictKind::smaller_bytes, "smaller_bytes"},
                                   std::pair{VerdictKind::bus_bound, "bus_bound"},
                                   std::pair{VerdictKind::compute_bound, "compute_bound"},
                                   std::pair{VerdictKind::balanced, "balanced"},
                                   std::pair{VerdictKind::cheaper_source, "cheaper_source"},
                                   std::pair{VerdictKind::faster_transform, "faster_transform"},
                                   std::pair{VerdictKind::waiting_for_data, "waiting_for_data"},
                                   std::pair{VerdictKind::one_late_batch, "one_late_batch"}})
    CHECK(to_string(kind) == std::string(name));
}

TEST_CASE("the last line of the statistics is the verdict", "[verdict]") {
  const Stats stats = timed({990, 100, 250});
  std::ostringstream text;
  text << stats;
  const std::string last = "bottleneck: source\nverdict: " + stats.verdict().sentence;
  CHECK(text.str().substr(text.str().size() - last.size()) == last);
}

TEST_CASE("what happened since a snapshot", "[stats]") {
  Stats before = timed({990, 100, 250});
  before.skipped = 1;
  before.transform = {.busy = 10ms, .batches = 90, .timed = 80};
  before.device_source = {.timed = 10, .busy = 5ms, .batches = 20, .span = 50ms};
  before.waits = {.batches = 40, .waiting = 4ms};
  before.worker_cpu = 30ms;
  Stats now = timed({0, 0, 0});
  now.source = {.busy = 3s, .waiting_for_room = 1s, .batches = 300, .bytes = 300'000'000};
  now.copy = {.busy = 90ms, .waiting_for_input = 2s, .waiting_for_room = 1s, .batches = 150};
  now.consumer = {.busy = 20ms, .waiting_for_input = 1s, .batches = 141};
  before.source.queued = 1;
  now.source.queued = 2;
  before.copy.queued = 1.5;
  now.copy.queued = 1;
  now.transform = {.busy = 30ms, .batches = 140, .timed = 130};
  now.device_source = {.timed = 15, .busy = 8ms, .batches = 40, .span = 90ms};
  now.waits = {.batches = 60, .waiting = 9ms};
  now.worker_cpu = 70ms;
  now.skipped = 3;
  now.replaced = 2;
  now.device = DeviceTimes{.copies = 150,
                           .batches = 140,
                           .consuming = 500ms,
                           .awaiting_batch = 1s,
                           .awaiting_copy = 7ms,
                           .longest_wait = 60ms};
  const Stats since = now.since(before);
  CHECK(since.source.busy == 1020ms);
  CHECK(since.source.waiting_for_room == 980ms);
  CHECK(since.source.batches == 200);
  CHECK(since.source.bytes == 200'000'000);
  CHECK(since.copy.busy == 0ms);  // An estimate may become less; a time does not.
  CHECK(since.copy.waiting_for_input == 1100ms);
  CHECK(since.copy.waiting_for_room == 1s);
  CHECK(since.consumer.busy == 10ms);
  CHECK(since.consumer.batches == 40);
  CHECK(since.source.queued == Approx(4));  // (150 x 2 - 100 x 1) / 50
  CHECK(since.copy.queued == 0);            // (141 x 1 - 101 x 1.5) / 40 is below 0
  CHECK(now.since(now).source.queued == 2);
  CHECK(since.transform.busy == 20ms);
  CHECK(since.transform.timed == 50);
  CHECK(since.device_source.timed == 5);
  CHECK(since.device_source.busy == 3ms);
  CHECK(since.device_source.batches == 20);
  CHECK(since.device_source.span == 40ms);
  CHECK(since.waits.batches == 20);
  CHECK(since.waits.waiting == 5ms);
  CHECK(since.worker_cpu == 40ms);
  CHECK(since.skipped == 2);
  CHECK(since.replaced == 2);
  CHECK(since.device->copies == 50);
  CHECK(since.device->batches == 40);
  CHECK(since.device->consuming == 250ms);
  CHECK(since.device->awaiting_batch == 250ms);
  CHECK(since.device->awaiting_copy == 7ms);
  CHECK(since.device->longest_wait == 60ms);
  CHECK(since.workers == 2);
  CHECK_FALSE(before.since(before).device->batches);

  Stats held = before;  // Time that the device consumed turns out to be time that it waited.
  held.device->consuming -= 10ms;
  held.device->awaiting_copy += 10ms;
  CHECK(held.since(before).device->consuming == 0ms);
  CHECK(held.since(before).device->awaiting_copy == 10ms);
}
