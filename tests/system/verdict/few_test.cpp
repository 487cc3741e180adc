// SPDX-License-Identifier: Apache-2.0

// A few cases for the sanitizers, under which no time means anything: only that all of it is safe.

#include <algorithm>

#include "pipeline.hpp"
#include "support/catch.hpp"

using penstock::test::Loop;
using penstock::test::Outcome;
using penstock::test::Pipeline;
using penstock::test::Source;

TEST_CASE("every kind of pipeline is watched and judged", "[verdict]") {
  const bool device_times = GENERATE(true, false);
  Pipeline pipeline = GENERATE(
      Pipeline{.fill = {4}, .step = {1}, .workers = 2},
      Pipeline{.fill = {1}, .step = {1}, .copy = 4},
      Pipeline{.loop = Loop::waits, .fill = {1}, .step = {3}, .device_depth = 1},
      Pipeline{.source = Source::sample, .ragged = true, .loop = Loop::works, .workers = 2},
      Pipeline{.unbounded = true, .transforms = true, .fill = {4}, .transform = 1},
      Pipeline{.source = Source::device, .fill = {1}, .step = {1}},
      Pipeline{.source = Source::device_queues, .fill = {4}, .workers = 2, .device_depth = 4});
  pipeline.batches = 20;
  pipeline.device_times = device_times;
  const Outcome outcome = run(pipeline);
  const bool on_device =
      pipeline.source == Source::device || pipeline.source == Source::device_queues;
  CHECK(outcome.stats.consumer.batches == 20);
  CHECK(outcome.stats.device.has_value() == device_times);
  if (device_times) {
    // A source and a loop that only queue are further ahead of the device than batches are timed.
    const bool is_ahead = pipeline.source == Source::device_queues && pipeline.loop == Loop::queues;
    CHECK(outcome.stats.device->batches > 0);
    CHECK((outcome.stats.device->batches == 19 || is_ahead));
    CHECK(outcome.stats.device->copies == (on_device ? 0 : 20));
  }
  const auto& recent = outcome.stats.recent->batches;
  CHECK(std::any_of(recent.begin(), recent.end(),
                    [](const auto& batch) { return batch.device.source >= 0; }) == on_device);
  CHECK((outcome.stats.transform.busy.count() > 0) == pipeline.transforms);
  CHECK_FALSE(outcome.stats.verdict().sentence.empty());
}
