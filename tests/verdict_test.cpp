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
  CHECK(verdict.enough_workers == 9);  // 19.8 ms of one worker in 0.9 x 2.5 ms
  CHECK(says(verdict, "9 workers would be enough"));
  CHECK(verdict.enough_host_depth == 0);
  // The copy may leave less time than the consumer does.
  CHECK(timed({990, 500, 250}).verdict().enough_workers == 5);
  // One more, at least.
  CHECK(timed({990, 100, 940}).verdict().enough_workers == 3);
}

TEST_CASE("a source is at its limit above nine tenths of its time", "[verdict]") {
  CHECK(timed({901, 100, 250}).verdict().kind == VerdictKind::more_workers);
  CHECK(timed({900, 100, 250}).verdict().kind == VerdictKind::deeper_ring);
  CHECK(timed({900, 100, 250}).verdict().stage == Bottleneck::source);
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

TEST_CASE("a copy at its limit needs smaller bytes, and up to four times that is uint8",
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
  CHECK(timed({100, 900, 300}).verdict().kind == VerdictKind::deeper_ring);
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
  stats.device->longest_wait = 0ns;
  CHECK(stats.verdict().enough_host_depth == 5);
}

TEST_CASE("a single slot comes before the ring on the host", "[verdict]") {
  Stats stats = timed({100, 490, 510});
  stats.device_depth = 1;
  const Verdict verdict = stats.verdict();
  CHECK(verdict.stage == Bottleneck::consumer);
  CHECK(verdict.kind == VerdictKind::deeper_ring);
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
  stats.device->longest_wait = 0ns;
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
                                   std::pair{VerdictKind::balanced, "balanced"}})
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
  Stats now = timed({0, 0, 0});
  now.source = {.busy = 3s, .waiting_for_room = 1s, .batches = 300, .bytes = 300'000'000};
  now.copy = {.busy = 90ms, .waiting_for_input = 2s, .waiting_for_room = 1s, .batches = 150};
  now.consumer = {.busy = 20ms, .waiting_for_input = 1s, .batches = 141};
  before.source.queued = 1;
  now.source.queued = 2;
  before.copy.queued = 1.5;
  now.copy.queued = 1;
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
