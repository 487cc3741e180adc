// SPDX-License-Identifier: Apache-2.0

// A Tuner and its log between threads: ThreadSanitizer watches.

#include <penstock/detail/observe/timeline.hpp>
#include <penstock/detail/observe/tune_log.hpp>
#include <penstock/detail/observe/tuner.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "support/catch.hpp"
#include "support/simulated_pipeline.hpp"

using penstock::TuneReason;
using penstock::Tuning;
using penstock::detail::Ticks;
using penstock::detail::Timeline;
using penstock::detail::TuneLog;
using penstock::detail::Tuner;
using penstock::detail::TuneSettings;
using penstock::test::SimulatedPipeline;

namespace {

constexpr TuneSettings kMost{.workers = 16, .host_depth = 64, .device_depth = 8};
constexpr TuneSettings kStart{.workers = 1, .host_depth = 2, .device_depth = 2};

}  // namespace

TEST_CASE("settings are read, applied and raised while another thread looks", "[tuner][threads]") {
  constexpr int kRounds = 40;
  SimulatedPipeline run(kMost, kStart);
  std::atomic<int> round{0};
  std::size_t applied = 0, settings = 0;
  std::thread reading([&] {
    do {
      run.tuner().apply([&](const TuneSettings& now) { applied = now.workers; });
      settings = run.tuner().settings().host_depth;
    } while (round.load(std::memory_order_relaxed) < kRounds);
  });
  std::thread raising([&] {
    for (int seen = 0; seen < kRounds;) {
      const int now = round.load(std::memory_order_relaxed);
      if (std::exchange(seen, now) == now) continue;
      run.tuner().add_memory(1);
      run.tuner().add_slot(1, TuneReason::leases);
    }
  });
  while (round.fetch_add(1, std::memory_order_relaxed) < kRounds)
    run.take({.source = round % 2 == 0 ? 12.0 : 1.0, .consumer = 2}, 20);
  reading.join();
  raising.join();
  CHECK(applied >= 1);
  CHECK(settings > kStart.host_depth);
  CHECK(run.tuner().settings().device_depth > kStart.device_depth);
}

TEST_CASE("threads look in turn", "[tuner][threads]") {
  SimulatedPipeline run(kMost, kStart);
  run.take({.source = 8, .consumer = 2}, 7);  // The eighth would be looked at.
  std::atomic<Ticks> now{Ticks{1} << 40};
  std::atomic<int> looks{0};
  const auto look = [&] {
    while (looks.load(std::memory_order_relaxed) < 200) {
      if (!run.tuner().is_due()) continue;
      const Ticks later = now.fetch_add(20'000'000, std::memory_order_relaxed);
      run.tuner().look(run.timeline(), {}, later);
      looks.fetch_add(1, std::memory_order_relaxed);
    }
  };
  std::thread other(look);
  look();
  other.join();
  CHECK(run.tuner().settings().workers >= 1);
}

TEST_CASE("a log is read while the periods of its decisions are set", "[tuner][threads]") {
  TuneLog log;
  for (std::size_t batch = 0; batch < TuneLog::most_kept; ++batch)
    log.add(
        {.batch = batch, .reason = TuneReason::faster, .predicted = std::chrono::nanoseconds(1)});
  std::atomic<bool> reads{true};
  std::thread other([&] {
    while (reads)
      for (std::size_t batch = 0; batch < TuneLog::most_kept; ++batch)
        log.measure(batch, std::chrono::nanoseconds(batch + 1));
  });
  Tuning tuning;
  while (tuning.last.empty() || tuning.last.back().measured.count() == 0) {
    tuning.last.clear();
    log.add_to(tuning);
  }
  reads = false;
  other.join();
  CHECK(tuning.last.back().measured.count() == TuneLog::most_kept);
}
