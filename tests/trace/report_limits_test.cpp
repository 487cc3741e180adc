// SPDX-License-Identifier: Apache-2.0

// A timeline of a million events: report and findings in less than 5 s and 1 GiB.

#include <sys/resource.h>

#include <chrono>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/report.hpp>
#include <sstream>

#include "support/catch.hpp"
#include "support/sanitized.hpp"
#include "timeline_builder.hpp"

using namespace penstock::trace;
using penstock::test::TimelineBuilder;

namespace {

/// Training: in each step 188 kernels of 47 names, two copies, six ranges, calls for all of it, and
/// workers that load; the device has gaps, and the launches are tight.
Timeline training(std::size_t events) {
  TimelineBuilder builder;
  const auto compute = builder.stream(0, 13), copies = builder.stream(0, 14);
  const auto main = builder.thread(1, "main"), worker = builder.thread(2, "worker");
  std::vector<std::string> kernels;
  for (int i = 0; i < 47; ++i)
    kernels.push_back("_ZN3net4convIfLi" + std::to_string(i) + "EEEvPKT_PS1_");
  double host = 0, device = 0;
  builder.range(main, "entire training", {0, 1e12});
  for (std::size_t made = 0; made + 390 <= events; made += 390) {
    const double begin = host;
    builder.range(main, "get batch", {host, host + 50});
    for (int i = 0; i < 3; ++i)
      builder.range(worker, "fill", {host + 100 * i, host + 100 * i + 90}, "penstock");
    for (int i = 0; i < 2; ++i)
      builder.copy(main, copies, 16 << 20, {host + 50 + 5 * i, host + 54 + 5 * i},
                   {host + 60 + 400 * i, host + 450 + 400 * i});
    for (const char* stage : {"forward", "loss", "backward", "optimizer"}) {
      const double stage_begin = host += 100;
      for (int i = 0; i < 47; ++i, host += 5) {
        device = std::max(device + 0.5, host + 5);
        builder.launch(main, compute, kernels[static_cast<std::size_t>(i)], {host, host + 4},
                       {device, device + 3});
        device += 3;
      }
      builder.range(main, stage, {stage_begin, host});
    }
    builder.call(main, "cudaStreamSynchronize_v3020", {host, host + 20});
    host += 30;
    builder.range(main, "step", {begin, host - 5});
  }
  return builder.timeline();
}

}  // namespace

TEST_CASE("A report of a million events takes less than 5 s and 1 GiB") {
  const std::size_t events = PENSTOCK_TEST_SANITIZED ? 100'000 : 1'000'000;
  const Timeline timeline = training(events);
  CHECK(timeline.events.size() > events * 99 / 100);

  const auto begin = std::chrono::steady_clock::now();
  const Report report(timeline);
  std::ostringstream text;
  text << report;
  const auto reported = std::chrono::steady_clock::now();
  const std::vector<Finding> findings = find(timeline);
  const auto end = std::chrono::steady_clock::now();

  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double report_seconds = std::chrono::duration<double>(reported - begin).count();
  const double find_seconds = std::chrono::duration<double>(end - reported).count();
  WARN(timeline.events.size() << " events: report " << report_seconds << " s, findings "
                              << find_seconds << " s; " << usage.ru_maxrss / 1024
                              << " MiB of memory at most, the timeline included");
  CHECK(report.steps > 0);
  CHECK_FALSE(findings.empty());
  CHECK(report_seconds + find_seconds < 5);
  if (!PENSTOCK_TEST_SANITIZED) CHECK(usage.ru_maxrss < 1024 * 1024);
}
