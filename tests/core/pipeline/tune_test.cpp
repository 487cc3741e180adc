// SPDX-License-Identifier: Apache-2.0

#include <penstock/tuning.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <penstock/detail/observe/tune_log.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/thrown.hpp"

using namespace std::chrono_literals;
using penstock::TuneDecision;
using penstock::TuneKnob;
using penstock::TuneReason;
using penstock::test::Mentions;

static std::string printed(const TuneDecision& decision) {
  std::ostringstream text;
  text << decision;
  return text.str();
}

TEST_CASE("a decision is one line, with the numbers that it was made on", "[tune]") {
  TuneDecision decision{.batch = 12,
                        .knob = TuneKnob::workers,
                        .reason = TuneReason::faster,
                        .from = 1,
                        .to = 4,
                        .source = 8ms,
                        .consumer = 2ms,
                        .period = 8100us,
                        .predicted = 2100us};
  CHECK(printed(decision) ==
        "batch 12: workers 1 -> 4: batches come faster (a worker takes 8.00 ms a batch, the "
        "consumer 2.00 ms, a batch comes every 8.10 ms; predicted 2.10 ms)");
  decision.measured = 2200us;
  CHECK(printed(decision) ==
        "batch 12: workers 1 -> 4: batches come faster (a worker takes 8.00 ms a batch, the "
        "consumer 2.00 ms, a batch comes every 8.10 ms; predicted 2.10 ms, measured 2.20 ms)");
  decision = {.batch = 40, .reason = TuneReason::reverted, .from = 4, .to = 1, .period = 8ms};
  CHECK_THAT(printed(decision), Mentions("workers 4 -> 1: it did not do what was expected") &&
                                    Mentions("a batch comes every 8.00 ms)"));
  CHECK(printed({.batch = 3,
                 .knob = TuneKnob::device_depth,
                 .reason = TuneReason::leases,
                 .from = 2,
                 .to = 3,
                 .source = {},
                 .consumer = {},
                 .period = {},
                 .predicted = {},
                 .measured = {}}) == "batch 3: device_depth 2 -> 3: more leases are held");
}

TEST_CASE("each knob and each reason has a name and words of its own", "[tune]") {
  CHECK(std::string(to_string(TuneKnob::host_depth)) == "host_depth");
  CHECK(std::string(to_string(TuneKnob::device_depth)) == "device_depth");
  CHECK(std::string(to_string(TuneReason::faster)) == "faster");
  CHECK(std::string(to_string(TuneReason::lost)) == "lost");
  for (int i = 0; i <= static_cast<int>(TuneReason::lost); ++i)
    for (int j = 0; j < i; ++j) {
      const auto a = static_cast<TuneReason>(i), b = static_cast<TuneReason>(j);
      CHECK(std::string(to_string(a)) != to_string(b));
      CHECK(std::string(penstock::detail::in_words(a)) != penstock::detail::in_words(b));
    }
}

TEST_CASE("what a change has led to is added to its decisions", "[tune]") {
  penstock::detail::TuneLog log;
  log.add({.batch = 5, .knob = TuneKnob::workers, .predicted = 2ms});
  log.add({.batch = 5, .knob = TuneKnob::host_depth, .predicted = 2ms});
  log.add({.batch = 5, .knob = TuneKnob::device_depth, .reason = TuneReason::leases});
  log.add({.batch = 9, .predicted = 1ms});
  log.measure(5, 3ms);
  penstock::Tuning tuning;
  log.add_to(tuning);
  REQUIRE(tuning.last.size() == 4);
  CHECK(tuning.last[0].measured == 3ms);
  CHECK(tuning.last[1].measured == 3ms);
  CHECK(tuning.last[2].measured == 0ms);
  CHECK(tuning.last[3].measured == 0ms);
}

TEST_CASE("decisions are logged by one thread and read by another", "[tune]") {
  constexpr std::uint64_t kDecisions = 200;
  penstock::detail::TuneLog log;
  const auto read = [&] {
    penstock::Tuning tuning;
    log.add_to(tuning);
    return tuning;
  };
  std::atomic<bool> over{false};
  int torn = 0;
  std::thread reader([&] {
    while (!over) {
      const penstock::Tuning tuning = read();
      if (!tuning.last.empty() && tuning.last.back().batch + 1 != tuning.decisions) ++torn;
    }
  });
  for (std::uint64_t i = 0; i < kDecisions; ++i) log.add({.batch = i});
  over = true;
  reader.join();
  CHECK(torn == 0);
  const penstock::Tuning tuning = read();
  CHECK(tuning.decisions == kDecisions);
  REQUIRE(tuning.last.size() == penstock::detail::TuneLog::most_kept);
  CHECK(tuning.last.front().batch == kDecisions - tuning.last.size());
  CHECK(tuning.last.back().batch == kDecisions - 1);
}
