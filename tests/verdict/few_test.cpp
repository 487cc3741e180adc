// SPDX-License-Identifier: Apache-2.0

// A few cases for the sanitizers, under which no time means anything: only that all of it is safe.

#include "injected.hpp"
#include "support/catch.hpp"

using penstock::test::Injected;
using penstock::test::Outcome;

TEST_CASE("source, copy and consumer are watched and judged", "[verdict]") {
  const Injected injected = GENERATE(
      Injected{.name = "source", .source = {4}, .consumer = {1}, .workers = 2, .batches = 20},
      Injected{.name = "copy", .source = {1}, .consumer = {1}, .copy = 4, .batches = 20},
      Injected{
          .name = "consumer", .source = {1}, .consumer = {3}, .device_depth = 1, .batches = 20},
      Injected{.name = "device source",
               .source = {1},
               .consumer = {1},
               .on_device = true,
               .batches = 20});
  const Outcome outcome = penstock::test::run(injected);
  CHECK(outcome.stats.device->batches == 19);
  CHECK(outcome.stats.device->copies == (injected.on_device ? 0 : 20));
  CHECK_FALSE(outcome.stats.verdict().sentence.empty());
}
