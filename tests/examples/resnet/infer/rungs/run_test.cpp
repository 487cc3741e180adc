// SPDX-License-Identifier: Apache-2.0

// Run: lanes share the requests, wait for each other between warm-up and measuring, and end when
// one of them fails.

#include "../../../../../examples/resnet/infer/rungs/run.hpp"

#include <atomic>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <stdexcept>

#include "../../../../support/temporary_directory.hpp"
#include "../../matchers.hpp"
#include "support/catch.hpp"

namespace resnet::rungs {
namespace {

namespace emulation = penstock::emulation;
using penstock::test::TemporaryDirectory;
using resnet::test::contains;

const Rung probe{
    .number = "I0", .name = "probe", .change = "nothing", .profiles = true, .contexts = true};

Options small_run(const TemporaryDirectory& directory) {
  Options options;
  options.model = "resnet8";
  options.image_size = 8;
  options.batches = {2};
  options.steps = 20;
  options.warmup = 7;
  options.contexts = 3;
  options.records = 20;
  options.cache = directory / "set";
  return options;
}

TEST_CASE("lanes: every request once, the measured ones behind all warm-up", "[resnet][infer]") {
  const TemporaryDirectory directory;
  Run run(probe, small_run(directory));
  REQUIRE(run.lanes() == 3);
  const std::uint64_t starts = emulation::calls("cudaProfilerStart");
  std::atomic<int> warm{0}, measured{0}, finished{0}, early{0};
  run.answered_before(2);
  run.in_every_lane([&](Lane& lane) {
    lane.for_each_request(
        [&] {
          if (emulation::calls("cudaProfilerStart") == starts) {
            ++warm;
            return;
          }
          ++measured;
          if (finished < 3) ++early;
        },
        [&] { ++finished; });
  });
  CHECK(warm == 5);
  CHECK(measured == 20);
  CHECK(early == 0);
  CHECK(finished == 6);
  CHECK(emulation::calls("cudaProfilerStop") >= 1);
  CHECK(run.timing().images_per_second > 0);
}

TEST_CASE("lanes: the first error ends all of them, wherever it is", "[resnet][infer]") {
  const TemporaryDirectory directory;
  Run run(probe, small_run(directory));
  const int place = GENERATE(0, 1, 2);
  CHECK_THROWS_WITH(run.in_every_lane([&](Lane& lane) {
    const auto fail_at = [&](int here) {
      if (lane.index() == 1 && place == here) throw std::runtime_error("no more");
    };
    fail_at(0);
    lane.for_each_request([] {}, [&] { fail_at(1); });
    fail_at(2);
  }),
                    contains("no more"));
}

TEST_CASE("a rung's own precision, batch and warm-up hold where nobody says otherwise",
          "[resnet][infer]") {
  const TemporaryDirectory directory;
  Options options = small_run(directory);
  Rung rung = probe;
  rung.precision = Precision::bf16;
  rung.batches = {1, 3};
  options.batches.clear();
  options.warmup = 0;
  const Run run(rung, options);
  CHECK(run.model().precision == Precision::bf16);
  CHECK(run.network().batches() == std::vector<std::int64_t>{1, 3});
  CHECK(run.requests().sizes == std::vector<std::int64_t>{1, 3});
  CHECK(run.options().warmup == 6);
  options.precision = Precision::fp32;
  options.batches = {2, 4};
  options.requests = {3};
  const Run other(rung, options);
  CHECK(other.model().precision == Precision::fp32);
  CHECK(other.network().batches() == std::vector<std::int64_t>{2, 4});
  CHECK(other.requests().sizes == std::vector<std::int64_t>{3});
}

}  // namespace
}  // namespace resnet::rungs
