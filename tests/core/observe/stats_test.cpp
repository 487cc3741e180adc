// SPDX-License-Identifier: Apache-2.0

#include <fcntl.h>
#include <unistd.h>

#include <penstock/detail/observe/thread_usage.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/stats.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/made_stats.hpp"
#include "support/temporary_directory.hpp"

using namespace std::chrono_literals;
using penstock::Bottleneck;
using penstock::DeviceTimes;
using penstock::StageStats;
using penstock::Stats;
using penstock::VerdictKind;
using penstock::test::timed;
using penstock::test::timed_on_device;

namespace {

/// A second in which each stage works for `busy` of it, and waits for what is before or behind it.
Stats stats(std::chrono::milliseconds source_busy, std::chrono::milliseconds copy_busy,
            std::chrono::milliseconds copy_held, std::chrono::milliseconds consumer_busy) {
  Stats result;
  result.workers = 1;
  result.host_depth = 4;
  result.source = {.busy = source_busy, .waiting_for_room = 1s - source_busy};
  result.copy = {.busy = copy_busy,
                 .waiting_for_input = 1s - copy_busy - copy_held,
                 .waiting_for_room = copy_held};
  result.consumer = {.busy = consumer_busy, .waiting_for_input = 1s - consumer_busy};
  return result;
}

}  // namespace

TEST_CASE("utilisation is the part of its time that a stage works", "[stats]") {
  CHECK(StageStats{}.utilisation() == 0);
  CHECK(StageStats{.busy = 3s, .waiting_for_input = 1s, .waiting_for_room = 2s}.utilisation() ==
        0.5);
}

TEST_CASE("statistics print as a short table with units and the verdict", "[stats]") {
  Stats table = stats(990ms, 100ms, 0ms, 100ms);
  table.source.batches = 12;
  table.source.bytes = 3 << 20;
  table.workers = 2;
  table.host_depth = 4;
  table.host_bytes = 1536;
  std::ostringstream text;
  text << table;
  for (const char* part :
       {"source", "copy", "consumer", "0.990 s", "12", "3.0 MiB", "2 workers",
        "4 batches in pinned memory (1.5 KiB)", "bottleneck: ", "verdict: too early to tell"}) {
    INFO(text.str());
    CHECK(text.str().find(part) != std::string::npos);
  }
}

TEST_CASE("the table of an on_device source has no copies and no pinned memory", "[stats]") {
  std::ostringstream text;
  text << timed_on_device(20, 250, 700);
  CHECK(text.str().find("a device slot") != std::string::npos);
  for (const char* part : {"\ncopy", "pinned", "room in the ring"})
    CHECK(text.str().find(part) == std::string::npos);
}

TEST_CASE("what happened since a snapshot", "[stats]") {
  Stats before = timed({990, 100, 250});
  before.skipped = 1;
  before.transform = {.busy = 10ms, .batches = 90, .timed = 80};
  before.waits = {.batches = 40, .waiting = 4ms, .longest = 1ms};
  before.worker_cpu = 30ms;
  before.source_reads = penstock::ReadCounts{.calls = 10, .bytes = 160};
  Stats now = timed({0, 0, 0});
  now.source = {.busy = 3s, .waiting_for_room = 1s, .batches = 300, .bytes = 300'000'000};
  now.copy = {.busy = 90ms, .waiting_for_input = 2s, .waiting_for_room = 1s, .batches = 150};
  now.consumer = {.busy = 20ms, .waiting_for_input = 1s, .batches = 141};
  before.source.queued = 1;
  now.source.queued = 2;
  before.copy.queued = 1.5;
  now.copy.queued = 1;
  now.transform = {.busy = 30ms, .batches = 140, .timed = 130};
  now.waits = {.batches = 60, .waiting = 9ms, .longest = 1ms};
  now.worker_cpu = 70ms;
  now.source_reads = penstock::ReadCounts{.calls = 30, .bytes = 1160};
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
  CHECK(since.waits.batches == 20);
  CHECK(since.waits.waiting == 5ms);
  CHECK(since.waits.longest == 0ms);
  CHECK(since.worker_cpu == 40ms);
  REQUIRE(since.source_reads);
  CHECK(since.source_reads->calls == 20);
  CHECK(since.source_reads->bytes == 1000);
  CHECK(since.skipped == 2);
  CHECK(since.replaced == 2);
  CHECK(since.device->copies == 50);
  CHECK(since.device->batches == 40);
  CHECK(since.device->consuming == 250ms);
  CHECK(since.device->awaiting_batch == 250ms);
  CHECK(since.device->awaiting_copy == 7ms);
  CHECK(since.device->longest_wait == 60ms);
  CHECK(since.workers == 2);
  // What was the longest before is not of this time.
  now.longest_wait = before.longest_wait = 70ms;
  now.longest_fill = before.longest_fill = 80ms;
  now.device->longest_wait = before.device->longest_wait;
  CHECK(now.since(before).longest_wait == 0ms);
  CHECK(now.since(before).longest_fill == 0ms);
  CHECK(now.since(before).device->longest_wait == 0ms);
  now.longest_wait = 71ms;
  now.longest_fill = 81ms;
  CHECK(now.since(before).longest_wait == 71ms);
  CHECK(now.since(before).longest_fill == 81ms);
  CHECK_FALSE(before.since(before).device->batches);

  before.source_reads.reset();
  CHECK_FALSE(now.since(before).source_reads);

  Stats held = before;  // Time that the device consumed turns out to be time that it waited.
  held.device->consuming -= 10ms;
  held.device->awaiting_copy += 10ms;
  CHECK(held.since(before).device->consuming == 0ms);
  CHECK(held.since(before).device->awaiting_copy == 10ms);
}

TEST_CASE("every verdict has a name", "[stats]") {
  for (const auto& [verdict, name] :
       {std::pair{Bottleneck::source, "source"}, std::pair{Bottleneck::copy, "copy"},
        std::pair{Bottleneck::transform, "transform"}, std::pair{Bottleneck::consumer, "consumer"},
        std::pair{Bottleneck::waiting_for_slot, "waiting_for_slot"},
        std::pair{Bottleneck::waiting_for_data, "waiting_for_data"},
        std::pair{Bottleneck::balanced, "balanced"}})
    CHECK(to_string(verdict) == std::string(name));
  for (const auto& [kind, name] :
       {std::pair{VerdictKind::too_early, "too_early"}, std::pair{VerdictKind::nothing, "nothing"},
        std::pair{VerdictKind::more_workers, "more_workers"},
        std::pair{VerdictKind::more_depth, "more_depth"},
        std::pair{VerdictKind::faster_source, "faster_source"},
        std::pair{VerdictKind::faster_copy, "faster_copy"}})
    CHECK(to_string(kind) == std::string(name));
}

TEST_CASE("an activity tells what a worker does, for which batch, and since when", "[stats]") {
  using penstock::detail::WorkerActivity;
  using penstock::detail::WorkerState;
  using penstock::detail::WorkerTrace;
  WorkerTrace trace;
  CHECK(trace.activity().state == WorkerState::idle);
  trace.work_on(6, 100);
  {
    const WorkerTrace::Announcing announcing(trace, 6);
    CHECK(trace.activity().state == WorkerState::ahead);
    CHECK(trace.activity().since == 100);
  }
  const WorkerActivity works = trace.activity();
  CHECK(works.state == WorkerState::source);
  CHECK(works.number == 6);
  CHECK(works.since == 100);
  const penstock::detail::Ticks before = penstock::detail::ticks();
  penstock::detail::Ticks now = 0, waited_since = 0;
  {
    const WorkerTrace::Wait wait(trace, now, WorkerState::memory, 7);
    const WorkerActivity waits = trace.activity();
    CHECK(waits.state == WorkerState::memory);
    CHECK(waits.number == 7);
    CHECK(waits.since >= before);
    CHECK(waits.since == now);
    waited_since = now;
  }
  CHECK(trace.waiting().count() == now - waited_since);
  CHECK(trace.activity().state == WorkerState::idle);
}

TEST_CASE("CPU time is that of the threads between start and stop", "[stats]") {
  penstock::detail::ThreadUsage watch;
  CHECK(watch.cpu() == 0ns);
  std::atomic<bool> over{false};
  std::thread first([&] {
    watch.start();
    while (!over) {
    }
    watch.stop();
  });
  while (watch.cpu() < 5ms) std::this_thread::yield();  // While it runs.
  over = true;
  first.join();
  const auto stopped = watch.cpu();
  CHECK(stopped >= 5ms);
  CHECK(watch.cpu() == stopped);
  std::thread([&] {
    watch.start();
    watch.stop();
  }).join();
  CHECK(watch.cpu() >= stopped);
  CHECK(watch.cpu() < stopped + 1s);
}

TEST_CASE("reads are those of the threads between start and stop", "[stats]") {
  penstock::detail::ThreadUsage watch;
  REQUIRE(watch.reads());
  CHECK(watch.reads()->calls == 0);
  const penstock::test::TemporaryDirectory directory;
  const auto path = directory.records("a.bin", 0, 100, 10);
  const auto read = [&](int count) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    std::array<char, 10> target{};
    for (int i = 0; i < count; ++i)
      REQUIRE(::pread(file, target.data(), target.size(), i * 10) == 10);
    ::close(file);
  };
  std::promise<void> has_read, over;
  std::thread first([&] {
    watch.start();
    read(100);
    has_read.set_value();
    over.get_future().wait();
    watch.stop();
  });
  has_read.get_future().wait();
  const auto running = watch.reads();
  over.set_value();
  first.join();
  if (!running) return;  // This system does not tell.
  CHECK(running->calls == 100);
  CHECK(running->bytes == 1000);
  read(5);  // Of another thread.
  CHECK(watch.reads()->calls == 100);
  std::thread([&] {
    watch.start();
    read(7);
    watch.stop();
  }).join();
  CHECK(watch.reads()->calls == 107);
  CHECK(watch.reads()->bytes == 1070);
}

TEST_CASE("reads are unknown where a thread's are", "[stats]") {
  using penstock::ReadCounts;
  CHECK_FALSE(penstock::detail::reads_of_thread(-1));
  const auto parsed = penstock::detail::parse_reads("rchar: 12\nwchar: 5\nsyscr: 34\nsyscw: 1\n");
  REQUIRE(parsed);
  CHECK(parsed->bytes == 12);
  CHECK(parsed->calls == 34);
  for (const char* const text :
       {"", "rchar: 12\n", "rchar: 12\nwchar: 5\nsyscr: x\n", "rchar: x\nwchar: 5\nsyscr: 3\n"})
    CHECK_FALSE(penstock::detail::parse_reads(text));
  std::optional<ReadCounts> sum = ReadCounts{1, 10};
  penstock::detail::add_known(sum, ReadCounts{2, 20});
  REQUIRE(sum);
  CHECK(sum->calls == 3);
  CHECK(sum->bytes == 30);
  penstock::detail::add_known(sum, std::nullopt);
  CHECK_FALSE(sum);
  penstock::detail::add_known(sum, ReadCounts{2, 20});
  CHECK_FALSE(sum);
}

TEST_CASE("a stopwatch adds up what it ran", "[stats]") {
  using penstock::detail::Ticks;
  constexpr Ticks kSecond = 1'000'000'000;
  penstock::detail::Stopwatch watch;
  const Ticks now = penstock::detail::ticks();
  CHECK(watch.elapsed() == 0);
  watch.start(now - 8 * kSecond);
  watch.stop(now - 5 * kSecond);
  CHECK(watch.elapsed() == 3 * kSecond);
  watch.start(now - 2 * kSecond);
  CHECK(watch.elapsed() >= 5 * kSecond);
  CHECK(watch.elapsed() < 3600 * kSecond);
  watch.stop(now + 60 * kSecond);
  CHECK(watch.elapsed() == (3 + 2 + 60) * kSecond);
}

TEST_CASE("a stopwatch never reads less than it did, though it stops behind a reader", "[stats]") {
  using penstock::detail::Ticks;
  constexpr Ticks kMillisecond = 1'000'000;
  penstock::detail::Stopwatch watch;
  const Ticks begin = penstock::detail::ticks() - 10 * kMillisecond;
  watch.start(begin);
  const Ticks read = watch.elapsed();    // 10 ms at least
  watch.stop(begin + 4 * kMillisecond);  // The worker took this time, and was interrupted.
  CHECK(watch.elapsed() == read);
  watch.start(begin + 4 * kMillisecond);
  watch.stop(begin + 4 * kMillisecond + 2 * read);
  CHECK(watch.elapsed() == 4 * kMillisecond + 2 * read);
}
