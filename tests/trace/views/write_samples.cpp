// SPDX-License-Identifier: Apache-2.0
//
// Writes what page_test.py looks at:
//
//   penstock_trace_samples FOLDER [EVENTS]
//
//   run.html, run.json    a training run as a page, and what the page must show of it
//   empty.html            of a timeline without anything
//   odd.html, odd.json    names that would break a page, payloads of 64 bits, overlapping ranges,
//                         two devices
//   ranks.html            two ranks of a job
//   many.html             about EVENTS events, if given; prints how long writing took

#include <penstock/trace/findings.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/views.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../timeline_builder.hpp"
#include "joined.hpp"
#include "training_run.hpp"

namespace {

using namespace penstock::trace;
using namespace penstock::test;
using Json = nlohmann::json;

/// Every event: [kind, name, begin, end, value as text, correlation, track], times from the
/// timeline's begin.
Json events_of(const Timeline& timeline) {
  Json events = Json::array();
  for (const Event& event : timeline.events)
    events.push_back({static_cast<int>(event.kind), timeline.name(event),
                      event.begin - timeline.begin, event.end - timeline.begin,
                      std::to_string(event.value), event.correlation, event.track});
  return events;
}

Json summary_of(const Timeline& timeline, const Report& report,
                const std::vector<Finding>& findings) {
  Json json;
  json["events"] = events_of(timeline);
  json["duration"] = timeline.end - timeline.begin;
  for (const Track& track : timeline.tracks) json["tracks"].push_back(title(track));
  for (const RangeTimes& range : report.ranges)
    json["ranges"].push_back(
        {{"name", range.name}, {"count", range.count}, {"total", range.total}});
  for (const Gap& gap : report.gaps)
    json["gaps"].push_back({gap.begin - timeline.begin, gap.end - timeline.begin});
  for (const Finding& finding : findings)
    json["findings"].push_back({{"rule", to_string(finding.rule)},
                                {"begin", finding.begin - timeline.begin},
                                {"end", finding.end - timeline.begin}});
  json["steps"] = report.steps;
  return json;
}

void write_sample(const Timeline& timeline, const std::filesystem::path& folder,
                  const std::string& name) {
  const Report report(timeline, {.step = {}, .samples_per_step = 512});
  const std::vector<Finding> findings = find(timeline);
  write_page(timeline, report, findings, folder / (name + ".html"));
  // What is no UTF-8 in a name is replaced here as it is in the page.
  std::ofstream(folder / (name + ".json"))
      << summary_of(timeline, report, findings)
             .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Timeline odd_timeline() {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 7, "<img src=x onerror=alert(1)>");
  const auto other = builder.stream(1, 7);
  const auto thread = builder.thread(99, "\"quoted\" & 'single' \\ back");
  builder.range(thread, "</script><script>window.broken = true</script>", {0, 100}).value =
      18'446'744'073'709'551'615ULL;
  builder.range(thread, "bytes \xff\xfe no UTF-8, {{script}}", {10, 60}).value =
      9'007'199'254'740'993ULL;
  builder.range(thread, "überlappend 重なり", {50, 140});  // begins within, ends outside
  builder.range(thread, "", {150, 150});
  builder.launch(thread, stream, "_Z5scaleIfEvPT_", {20, 25}, {30, 90});
  builder.launch(thread, stream, "second", {26, 28}, {60, 95});  // while the first one runs
  const auto graph = builder.submit(thread, stream, Kind::kernel, "cudaGraphLaunch", "first node",
                                    {100, 105}, {110, 120});
  builder.add(Kind::kernel, stream, "second node", {121, 130}).correlation = graph.correlation;
  builder.launch(thread, other, "on device 1", {131, 133}, {140, 145});
  return builder.timeline();
}

Timeline two_ranks() {
  std::vector<Timeline> ranks(2, timeline_of({.steps = 3}));
  ranks[1].origin.rank = 1;
  return detail::join(ranks).timeline;
}

void write_many(std::uint64_t events, const std::filesystem::path& folder) {
  TrainingRun run{.steps = 0, .kernels = 60, .kernel = 9'000, .workers = 8};
  run.steps = events / (2 * run.kernels + 13);
  const Timeline timeline = timeline_of(run);
  const Report report(timeline, {.step = {}, .samples_per_step = 512});
  const std::vector<Finding> findings = find(timeline);
  const auto seconds = [](auto write) {
    const auto begin = std::chrono::steady_clock::now();
    write();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto page = folder / "many.html", trace = folder / "many.trace.json";
  const double page_time = seconds([&] { write_page(timeline, report, findings, page); });
  const double trace_time = seconds([&] { write_chrome_trace(timeline, trace); });
  std::cout << timeline.events.size() << " events: page " << page_time << " s, "
            << std::filesystem::file_size(page) / 1'000'000 << " MB; Chrome trace " << trace_time
            << " s, " << std::filesystem::file_size(trace) / 1'000'000 << " MB\n";
  std::filesystem::remove(trace);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "use: penstock_trace_samples FOLDER [EVENTS]\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  write_sample(timeline_of({}), folder, "run");
  write_sample(odd_timeline(), folder, "odd");
  write_sample(two_ranks(), folder, "ranks");
  write_sample(Timeline{{}, 0, 0, {""}, {}, {}, 0}, folder, "empty");
  if (argc > 2) write_many(std::strtoull(argv[2], nullptr, 10), folder);
}
