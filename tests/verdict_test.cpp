// SPDX-License-Identifier: Apache-2.0

// The rules of the verdict, one by one, on made-up numbers: which stage it names, and what to
// change. tests/verdict/ holds them against pipelines that run.

#include <penstock/stats.hpp>

#include <chrono>
#include <sstream>
#include <string>
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

TEST_CASE("a stream whose data come in bursts waits for them", "[verdict]") {
  Stats stats = timed({600, 100, 800});
  stats.setup.unbounded = true;
  stats.worker_cpu = 500ms;  // of 1200
  CHECK(stats.verdict().stage == Bottleneck::consumer);
  CHECK(stats.verdict().kind == VerdictKind::waiting_for_data);
  CHECK(says(stats.verdict(), "waiting for data: the source waits 58 %"));
  CHECK(says(stats.verdict(), "a deeper ring helps"));
  CHECK(stats.verdict().enough_host_depth == 0);
  stats.device->longest_wait = 170ms;  // No hiccup: that is how they come.
  CHECK(stats.verdict().kind == VerdictKind::waiting_for_data);
  stats = timed({800, 100, 600});
  stats.setup.unbounded = true;
  stats.worker_cpu = 1ms;
  CHECK(stats.verdict().stage == Bottleneck::waiting_for_data);
  // Who has input all the time waits for nothing; a copy at its limit is the limit.
  stats = timed({500, 100, 950});
  stats.setup.unbounded = true;
  stats.worker_cpu = 1ms;
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
  stats = timed({100, 990, 300});
  stats.setup.unbounded = true;
  stats.worker_cpu = 1ms;
  CHECK(stats.verdict().kind == VerdictKind::smaller_bytes);
  // Where it computes, the queue is too short.
  stats = timed({600, 100, 800});
  stats.setup.unbounded = true;
  stats.worker_cpu = 700ms;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
}

TEST_CASE("an on_device source of a stream waits for its data on the host", "[verdict]") {
  Stats stats = timed_on_device(920, 570, 0);
  stats.device_source = {.timed = 20, .busy = 60ms, .batches = 100, .span = 1s};
  stats.setup.unbounded = true;
  stats.worker_cpu = 1ms;
  CHECK(stats.verdict().stage == Bottleneck::waiting_for_data);
  CHECK(stats.verdict().source == 9200us);
}

TEST_CASE(
    "an on_device source that is busy on the host while its slot is read keeps others waiting",
    "[verdict]") {
  Stats stats = timed_on_device(990, 840, 0);
  stats.device_source = {.timed = 20, .busy = 60ms, .batches = 100, .span = 1s};
  CHECK(stats.verdict().kind == VerdictKind::more_workers);
  CHECK(stats.verdict().source == 9900us);
  // It may wait for the readers, too: while the consumer has input, nobody knows.
  stats = timed_on_device(990, 850, 0);
  stats.device_source = {.timed = 20, .busy = 60ms, .batches = 100, .span = 1s};
  CHECK(stats.verdict().stage == Bottleneck::consumer);
  CHECK(stats.verdict().source == 1500us);
}

TEST_CASE("a second stream that reads the slots is the consumer", "[verdict]") {
  Stats stats = timed({100, 100, 250});
  stats.copy.waiting_for_input = 100ms;
  stats.copy.waiting_for_room = 800ms;
  CHECK(stats.verdict().kind == VerdictKind::more_slots);
  stats.setup.second_stream = true;
  CHECK(stats.verdict().stage == Bottleneck::consumer);
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
  CHECK(says(stats.verdict(), "also_used_on"));
  CHECK(says(stats.verdict(), "its first one waits 75 % of its time"));
  stats.leased = 1.5;
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
  stats.leased = 1.6;  // In most steps they are held by leases.
  CHECK(stats.verdict().kind == VerdictKind::more_slots);
}

TEST_CASE("one slot is too few where copy and consumer fill the time by turns", "[verdict]") {
  Stats stats = timed({600, 390, 511});
  stats.device_depth = 1;
  CHECK(stats.verdict().kind == VerdictKind::more_slots);
  stats.copy = timed({600, 389, 511}).copy;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
}

TEST_CASE("queues that are seldom full and then empty are not too short", "[verdict]") {
  Stats stats = timed({600, 100, 800});
  stats.underruns = 4;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  stats.underruns = 3;  // in 100 batches
  const Verdict verdict = stats.verdict();
  CHECK(verdict.kind == VerdictKind::varies);
  CHECK(verdict.stage == Bottleneck::consumer);
  CHECK(verdict.enough_host_depth == 0);
  CHECK(says(verdict, "yet the consumer waits 20 % of its time"));
  CHECK(says(verdict, "stats().since(earlier)"));
  std::swap(stats.copy.waiting_for_input, stats.copy.waiting_for_room);
  CHECK(stats.verdict().kind == VerdictKind::varies);
  // Workers that wait for each other's blocks are another matter.
  stats.host_depth = 3;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  // So is a stage at its limit.
  stats = timed({990, 100, 250});
  stats.underruns = 0;
  CHECK(stats.verdict().kind == VerdictKind::more_workers);
}

TEST_CASE("an underrun before a snapshot is none after it", "[verdict]") {
  Stats before, after = timed({600, 100, 800});
  before.underruns = 7;
  CHECK(after.since(before).underruns == 3);
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

TEST_CASE("a single wait that decides what the slowest stage is says nothing of the others",
          "[verdict]") {
  Stats stats = timed({500, 400, 460});
  stats.device->longest_wait = stats.longest_fill = 400ms;  // of 540
  const Verdict verdict = stats.verdict();
  CHECK(verdict.kind == VerdictKind::one_late_batch);
  CHECK(verdict.starved == 0.54);
  CHECK(says(verdict, "400.00 ms late, longer than all other waits"));
  // There are many others.
  stats = timed({500, 400, 440});
  stats.device->longest_wait = stats.longest_fill = 400ms;
  CHECK(stats.verdict().kind != VerdictKind::one_late_batch);
  // It decides nothing.
  stats = timed({300, 700, 460});
  stats.device->longest_wait = 400ms;
  CHECK(stats.verdict().kind != VerdictKind::one_late_batch);
}

TEST_CASE("without device times a single wait is taken out of the samples, too", "[verdict]") {
  Stats stats = timed({600, 100, 0});
  stats.device.reset();
  stats.consumer = {.busy = 700ms, .waiting_for_input = 300ms, .batches = 101};
  stats.longest_wait = 200ms;
  stats.waits = {.batches = 50, .waiting = 190ms, .longest = 180ms};
  CHECK(stats.verdict().kind == VerdictKind::one_late_batch);
  CHECK(says(stats.verdict(), "one batch came 200.00 ms late"));
  // The host waits for the device, too, and far longer.
  stats.consumer.waiting_for_input = 600ms;
  CHECK(stats.verdict().kind == VerdictKind::one_late_batch);
  // The others waited as long.
  stats.waits.waiting = 320ms;
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  stats.consumer.waiting_for_input = 300ms;
  // It was not sampled: what the others waited remains.
  stats.waits.waiting = 90ms;
  stats.waits.longest = 4ms;
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

TEST_CASE("a source that reads a few bytes at a time is told so", "[verdict]") {
  using penstock::ReadCounts;
  Stats stats = timed({990, 100, 250});
  stats.worker_cpu = 1900ms;  // of 1980 ms in the source
  const std::string reads =
      "the source spends its time in reads of 16 bytes, 10240 a batch, one in "
      "1.9 us of its computing: ";
  stats.source_reads = ReadCounts{.calls = 1'024'000, .bytes = 16 * 1'024'000};
  CHECK(stats.verdict().kind == VerdictKind::more_workers);
  CHECK(says(stats.verdict(), "9 workers"));
  CHECK(says(stats.verdict(), reads + "read many rows by one call (RecordFile::read_many), or map "
                                      "the file (MappedRecords)"));
  stats.setup.cores = 2;
  CHECK(stats.verdict().kind == VerdictKind::cheaper_source);
  CHECK(says(stats.verdict(), reads));
  stats.setup.per_sample = true;
  CHECK(says(stats.verdict(), reads + "map the file (MappedRecords), or let a source of whole"));
  stats.setup = {.unbounded = true};
  CHECK(says(stats.verdict(), reads + "read more by one call"));
  stats.setup = {.batches = 2};
  CHECK(says(stats.verdict(), reads));

  const auto is_silent = [&] { return !says(stats.verdict(), "reads of"); };
  stats.setup = {};
  stats.source_reads.reset();  // It is unknown.
  CHECK(is_silent());
  stats.source_reads = ReadCounts{};
  CHECK(is_silent());
  stats.source_reads = ReadCounts{.calls = 1'024'000, .bytes = 513 * 1'024'000};  // not small
  CHECK(is_silent());
  stats.source_reads = ReadCounts{.calls = 1'024'000, .bytes = 512 * 1'024'000};
  CHECK(says(stats.verdict(), "reads of 512 bytes"));
  stats.source_reads = ReadCounts{.calls = 500'000, .bytes = 8'000'000};  // seldom, 3.8 us apart
  CHECK(is_silent());
  stats.source_reads = ReadCounts{.calls = 1'024'000, .bytes = 16 * 1'024'000};
  stats.worker_cpu = 300ms;  // It waits, for something else or for the disk.
  CHECK(is_silent());
  stats.worker_cpu = 0ms;
  CHECK(is_silent());
  stats = timed({700, 100, 250});  // The source is the slowest stage, and not at its limit.
  stats.worker_cpu = 1300ms;
  stats.source_reads = ReadCounts{.calls = 1'024'000, .bytes = 16 * 1'024'000};
  CHECK(stats.verdict().kind == VerdictKind::deeper_ring);
  CHECK(says(stats.verdict(), "reads of 16 bytes, 10240 a batch, one in 1.3 us"));
  stats.consumer.batches = 7;
  CHECK(stats.verdict().kind == VerdictKind::too_early);
  CHECK(is_silent());
  stats = timed({100, 990, 250});  // Another stage is the slow one.
  stats.worker_cpu = 190ms;
  stats.source_reads = ReadCounts{.calls = 1'024'000, .bytes = 16 * 1'024'000};
  CHECK(is_silent());
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
