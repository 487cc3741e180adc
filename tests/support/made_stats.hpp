// SPDX-License-Identifier: Apache-2.0
#pragma once

// Statistics that are made up, and what their verdict says:
//
//   const Stats stats = timed({990, 100, 250});  // a source that takes 99 % of its time, ...
//   CHECK(says(stats.verdict(), "9 workers"));

#include <chrono>
#include <penstock/stats.hpp>
#include <string>

#include "catch.hpp"

namespace penstock::test {

/// Parts of a second in which the stages work, in per mille.
struct PerMille {
  int source, copy, consumer;
};

/// 100 batches in a second, timed on the device; of two workers, a megabyte each.
inline Stats timed(PerMille loads) {
  using namespace std::chrono_literals;
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
inline Stats timed_on_device(int source, int consumer, int awaiting_copy) {
  Stats stats = timed({source, 0, consumer});
  stats.host_depth = 0;
  stats.copy = {.waiting_for_input = std::chrono::seconds(1)};
  stats.device->copies = 0;
  stats.device->awaiting_copy = std::chrono::milliseconds(awaiting_copy);
  stats.device->awaiting_batch -= stats.device->awaiting_copy;
  return stats;
}

inline bool says(const Verdict& verdict, const std::string& part) {
  UNSCOPED_INFO(verdict.sentence);  // for the check of what this returns
  return verdict.sentence.find(part) != std::string::npos;
}

}  // namespace penstock::test
