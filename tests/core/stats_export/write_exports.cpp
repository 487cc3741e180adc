// SPDX-License-Identifier: Apache-2.0

// Writes made-up statistics: write_exports json|prometheus [device]. check_exports.py knows them.

#include <chrono>
#include <cstdio>
#include <memory>
#include <penstock/stats_export.hpp>
#include <string>

#include "../../support/made_records.hpp"

namespace {

penstock::Stats made_up(bool device) {
  using namespace std::chrono_literals;
  penstock::Stats stats;
  stats.source = {.busy = 1990ms,
                  .waiting_for_room = 10ms,
                  .batches = 100,
                  .bytes = 100'000'000'000,
                  .queued = 0.125,
                  .capacity = 4};
  stats.copy = {.busy = 100ms,
                .waiting_for_input = 899999999ns,
                .waiting_for_room = 1ns,
                .batches = 99,
                .bytes = 99'000'000'000,
                .queued = 1.5,
                .capacity = 2};
  stats.consumer = {.busy = 250ms, .waiting_for_input = 750ms, .batches = 98, .bytes = 7};
  stats.setup.transforms = device;
  if (device) stats.transform = {.busy = 50ms, .waiting_for_input = 950ms, .batches = 99};
  stats.first_batch = 1500us;
  stats.longest_wait = 25ms;
  stats.worker_cpu = 1500ms;
  stats.longest_fill = 40ms;
  if (device) stats.source_reads = penstock::ReadCounts{.calls = 12, .bytes = 192};
  stats.skipped = 3;
  stats.replaced = 4;
  stats.workers = 2;
  stats.host_depth = 5;
  stats.device_depth = 6;
  stats.host_bytes = 4096;
  stats.device_bytes = 8192;
  const penstock::test::MadePipeline pipeline{
      .fill = 19.9, .copy = 1.0, .step = 1.99, .workers = 2, .host_depth = 5, .device_depth = 6};
  stats.recent = pipeline.stats(98).recent;
  if (!device) {
    stats.waits = {.batches = 97, .waiting = 750ms};
    return stats;
  }
  stats.placement = std::make_shared<const std::string>("cores 0-3 of NUMA node 0");
  stats.device = penstock::DeviceTimes{.copies = 97,
                                       .batches = 96,
                                       .consuming = 200ms,
                                       .awaiting_batch = 700ms,
                                       .awaiting_copy = 100ms,
                                       .longest_wait = 30ms};
  return stats;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string format = argc > 1 ? argv[1] : "";
  const penstock::Stats stats = made_up(argc > 2);
  const penstock::Labels labels = {{"job", "train"}, {"path", "a\\b \"c\"\nd, é"}};
  if (format == "json")
    std::puts(to_json(stats).c_str());
  else if (format == "prometheus")
    std::fputs(to_prometheus(stats, labels).c_str(), stdout);
  else if (format == "bare")
    std::fputs(to_prometheus(stats).c_str(), stdout);
  else if (format == "escaped")  // A text like no verdict has.
    std::puts(penstock::detail::JsonText()
                  .begin_object()
                  .member("text", "a\\b \"c\"\n\x01 é <\xFF")
                  .end_object()
                  .text()
                  .c_str());
  else
    return 2;
}
