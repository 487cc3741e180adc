// SPDX-License-Identifier: Apache-2.0
#include <penstock/trace/views.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "../timeline_builder.hpp"
#include "support/catch.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown.hpp"
#include "training_run.hpp"

namespace penstock::test {

namespace {

using namespace trace;
using Json = nlohmann::json;

Json written(const Timeline& timeline) {
  const TemporaryDirectory directory;
  write_chrome_trace(timeline, directory / "trace.json");
  return Json::parse(std::ifstream(directory / "trace.json"));
}

/// The trace's events of one phase: "X" complete, "M" metadata, "s" and "f" ends of a flow.
std::vector<Json> of_phase(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

/// Of the process or thread of an event, as the viewer shows it.
std::string name_of(const Json& trace, const std::string& what, const Json& event) {
  for (const Json& one : of_phase(trace, "M"))
    if (one["name"] == what && one["pid"] == event["pid"] &&
        (what == "process_name" || one["tid"] == event["tid"]))
      return one["args"]["name"];
  return "(none)";
}

/// What the file says, to the nanosecond: a double would not hold it.
std::vector<std::string> texts_of(const Timeline& timeline, const std::string& key) {
  const TemporaryDirectory directory;
  write_chrome_trace(timeline, directory / "trace.json");
  std::ifstream file(directory / "trace.json");
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"ph\":\"X\"") == std::string::npos) continue;
    const std::size_t begin = line.find("\"" + key + "\":") + key.size() + 3;
    found.push_back(line.substr(begin, line.find(',', begin) - begin));
  }
  return found;
}

Event event_of(Kind kind, Time begin, Time end) {
  Event event;
  event.kind = kind;
  event.begin = begin;
  event.end = end;
  return event;
}

Timeline one_thread(std::vector<Event> events) {
  Timeline timeline;
  timeline.names = {""};
  timeline.tracks = {{Track::Kind::thread, -1, 5, ""}};
  timeline.events = std::move(events);
  arrange(timeline);
  return timeline;
}

}  // namespace

TEST_CASE("Every event of a timeline is in its Chrome trace, in microseconds") {
  const Timeline timeline = timeline_of(TrainingRun{});
  const Json trace = written(timeline);
  const std::vector<Json> events = of_phase(trace, "X");
  REQUIRE(events.size() == timeline.events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& event = timeline.events[i];
    CAPTURE(i, events[i].dump());
    CHECK(std::abs(events[i]["ts"].get<double>() * 1000 - double(event.begin)) < 0.5);
    CHECK(std::abs(events[i]["dur"].get<double>() * 1000 - double(event.duration())) < 0.5);
    if (event.name != 0) CHECK(events[i]["name"] == timeline.name(event));
    CHECK(name_of(trace, "thread_name", events[i]) == title(timeline.track(event)));
  }
  CHECK(trace["otherData"]["program"] == timeline.origin.program);
  CHECK(trace["otherData"]["emulated"] == true);
}

TEST_CASE("Lanes are threads of their own in a Chrome trace") {
  Timeline timeline;
  timeline.names = {"", "GET"};
  timeline.tracks = {{Track::Kind::thread, -1, 1, ""},
                     {Track::Kind::lane, -1, 0, ""},
                     {Track::Kind::lane, -1, 1, ""}};
  for (const std::uint32_t track : {0, 1, 2}) {
    timeline.events.push_back(event_of(Kind::range, 10 * track, 100));
    timeline.events.back().track = track;
  }
  arrange(timeline);
  const Json trace = written(timeline);
  std::set<Json> threads;
  std::vector<std::string> titles;
  for (const Json& event : of_phase(trace, "X")) {
    threads.insert(event["tid"]);
    titles.push_back(name_of(trace, "thread_name", event));
  }
  CHECK(threads.size() == 3);
  CHECK(titles == std::vector<std::string>{"thread 1", "requests 1", "requests 2"});
}

TEST_CASE("Devices and the process are processes of a Chrome trace, in this order") {
  TimelineBuilder builder;
  const auto first = builder.stream(0, 0), second = builder.stream(1, 7, "side");
  const auto thread = builder.thread(2, "main");
  builder.launch(thread, first, "a", {0, 1}, {2, 3});
  builder.launch(thread, second, "b", {4, 5}, {6, 7});
  Timeline timeline = builder.timeline();
  timeline.origin.program = "./train";
  timeline.origin.rank = 3;
  timeline.origin.device = "NVIDIA H200";
  for (const std::int64_t process : {4711, 1, 2}) {  // 1 and 2: in a container
    timeline.origin.process = process;
    const Json trace = written(timeline);
    std::map<std::string, std::string> process_of;
    for (const Json& event : of_phase(trace, "X"))
      process_of[event["name"]] = name_of(trace, "process_name", event);
    CHECK(process_of["a"] == "device 0: NVIDIA H200");
    CHECK(process_of["b"] == "device 1");
    CHECK(process_of["cudaLaunchKernel_v7000"] == "./train (rank 3)");

    std::map<std::int64_t, std::string> order;
    for (const Json& one : of_phase(trace, "M"))
      if (one["name"] == "process_sort_index")
        order[one["args"]["sort_index"]] = name_of(trace, "process_name", one);
    CHECK(order == std::map<std::int64_t, std::string>{
                       {0, "device 0: NVIDIA H200"}, {1, "device 1"}, {2, "./train (rank 3)"}});
  }
}

TEST_CASE("A Chrome trace keeps nanoseconds, far from zero and before it") {
  const Time far = 4'000'000'000'000'000'123;
  const Timeline timeline =
      one_thread({event_of(Kind::range, -1, 999), event_of(Kind::range, -1'000'001, -1'000'000),
                  event_of(Kind::range, far, far + 1), event_of(Kind::range, 1000, 1000)});
  CHECK(texts_of(timeline, "ts") ==
        std::vector<std::string>{"-1000.001", "-0.001", "1.000", "4000000000000000.123"});
  CHECK(texts_of(timeline, "dur") == std::vector<std::string>{"0.001", "1.000", "0.000", "0.001"});
}

TEST_CASE("What events say of themselves is in a Chrome trace") {
  Timeline timeline = one_thread({});
  timeline.tracks.insert(timeline.tracks.begin(), Track{Track::Kind::stream, 0, 7, ""});
  timeline.names = {"", "penstock", "fill"};
  Event copy = event_of(Kind::copy, 0, 1000);
  copy.value = 24'000;
  copy.direction = Direction::device_to_host;
  copy.flags = Flag::pageable | Flag::synchronous;
  Event instant = event_of(Kind::fill, 2000, 2000);
  instant.value = std::numeric_limits<std::uint64_t>::max();
  Event range = event_of(Kind::range, 3000, 4000);
  range.track = 1;
  range.name = 2;
  range.domain = 1;
  range.value = 42;
  range.color = 0xff59a14f;
  Event call = event_of(Kind::call, 5000, 6000);
  call.track = 1;
  call.value = 2;
  call.flags = Flag::failed;
  timeline.events = {copy, instant, range, call};
  const std::vector<Json> events = of_phase(written(timeline), "X");
  REQUIRE(events.size() == 4);
  CHECK(events[0]["name"] == "copy device to host");
  CHECK(events[0]["args"] == Json{{"bytes", 24'000},
                                  {"GB/s", 24.0},
                                  {"direction", "device to host"},
                                  {"pageable", true},
                                  {"synchronous", true}});
  CHECK(events[1]["args"] == Json{{"bytes", std::numeric_limits<std::uint64_t>::max()}});
  CHECK(events[2]["args"] == Json{{"payload", 42}, {"domain", "penstock"}, {"color", "#59a14f"}});
  CHECK(events[3]["args"] == Json{{"result", 2}, {"failed", true}});
}

TEST_CASE("The use of a device's video engines is a counter of its process in a Chrome trace") {
  Timeline timeline = one_thread({});
  timeline.engine_use = {{1500, 96, 1}};
  const Json trace = written(timeline);
  const std::vector<Json> counters = of_phase(trace, "C");
  REQUIRE(counters.size() == 1);
  CHECK(counters[0]["name"] == "video engines");
  CHECK(counters[0]["args"] == Json{{"percent", 96}});
  CHECK(name_of(trace, "process_name", counters[0]).substr(0, 8) == "device 1");
}

TEST_CASE("Memory of a device is a counter of its process in a Chrome trace") {
  Timeline timeline = one_thread({});
  timeline.memory = {{1500, 1 << 20, 0}, {2500, 3 << 20, 1}};
  const Json trace = written(timeline);
  const std::vector<Json> counters = of_phase(trace, "C");
  REQUIRE(counters.size() == 2);
  CHECK(counters[0]["name"] == "memory");
  CHECK(counters[0]["ts"] == 1.5);
  CHECK(counters[0]["args"] == Json{{"bytes", 1 << 20}});
  CHECK(name_of(trace, "process_name", counters[0]).substr(0, 8) == "device 0");
  CHECK(name_of(trace, "process_name", counters[1]).substr(0, 8) == "device 1");
}

TEST_CASE("Flows of a Chrome trace join each call with all that it put on streams") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13);
  const auto thread = builder.thread(9);
  // The device's clock is a little off: the first node seems to run before its launch.
  const auto correlation = builder.launch(thread, stream, "node", {10, 15}, {9, 12}).correlation;
  builder.add(Kind::kernel, stream, "node", {30, 40}).correlation = correlation;
  builder.add(Kind::kernel, stream, "of no known call", {50, 60}).correlation = 999;
  const Json trace = written(builder.timeline());
  const std::vector<Json> starts = of_phase(trace, "s"), ends = of_phase(trace, "f");
  REQUIRE(starts.size() == 2);
  REQUIRE(ends.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(starts[i]["id"] == ends[i]["id"]);
    CHECK(starts[i]["cat"] == ends[i]["cat"]);
    CHECK(starts[i]["ts"] == 10.001);
    CHECK(starts[i]["tid"] == 9);
    CHECK(ends[i]["bp"] == "e");
  }
  CHECK(starts[0]["id"] != starts[1]["id"]);
  CHECK(ends[0]["ts"] == 9.0);
  CHECK(ends[1]["ts"] == 30.0);
}

TEST_CASE("In each row of a Chrome trace events nest: those that overlap get further rows") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13, "graph");
  const auto thread = builder.thread(9);
  for (int i = 0; i < 4; ++i) builder.add(Kind::kernel, stream, "branch", {i, i + 3});
  builder.range(thread, "outer", {0, 10});
  builder.range(thread, "inner", {0, 10});
  builder.range(thread, "beyond", {5, 15});
  builder.range(thread, "after", {15, 20});
  const Json trace = written(builder.timeline());
  std::map<std::string, std::vector<std::pair<double, double>>> rows;
  std::map<std::string, std::string> row_of;
  for (const Json& event : of_phase(trace, "X")) {
    const std::string row = name_of(trace, "thread_name", event);
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    for (const auto& [from, until] : rows[row])
      CHECK((begin >= until || end <= from || (begin >= from && end <= until)));
    rows[row].emplace_back(begin, end);
    row_of[event["name"]] = row;
  }
  CHECK(rows.size() == 5);
  CHECK(rows.count("graph") == 1);
  CHECK(rows.count("graph (3)") == 1);
  CHECK(row_of["inner"] == "thread 9");
  CHECK(row_of["beyond"] == "thread 9 (2)");
  CHECK(row_of["after"] == "thread 9");
}

TEST_CASE("Names of a Chrome trace may hold any bytes") {
  TimelineBuilder builder;
  const auto thread = builder.thread(1, "\"tab\t\\ line\n \x01 \x7f");
  const std::vector<std::pair<std::string, std::string>> names{
      {"\"quoted\" \\ back", "\"quoted\" \\ back"},
      {"\x01\x1f", "\x01\x1f"},
      {"</script>", "</script>"},
      {"\xC3\xBC \xE9\x87\x8D \xF0\x9F\x8C\x8A", "\xC3\xBC \xE9\x87\x8D \xF0\x9F\x8C\x8A"},
      {"cut \xE9\x87", "cut \xEF\xBF\xBD\xEF\xBF\xBD"},
      {"stray \x80", "stray \xEF\xBF\xBD"},
      {"overlong \xC0\xAF", "overlong \xEF\xBF\xBD\xEF\xBF\xBD"},
      {"surrogate \xED\xA0\x80", "surrogate \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"beyond \xF4\x90\x80\x80", "beyond \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
      {"_Z5scaleIfEvPT_", "scale<float>"},
  };
  for (std::size_t i = 0; i < names.size(); ++i)
    builder.range(thread, names[i].first, {double(i), double(i) + 0.5});
  const Json trace = written(builder.timeline());
  const std::vector<Json> events = of_phase(trace, "X");
  REQUIRE(events.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) CHECK(events[i]["name"] == names[i].second);
  CHECK(name_of(trace, "thread_name", events[0]) == "\"tab\t\\ line\n \x01 \x7f");
}

TEST_CASE("A Chrome trace of nothing is a trace") {
  const Json trace = written(Timeline{{}, 0, 0, {""}, {}, {}, 0});
  CHECK(of_phase(trace, "X").empty());
  CHECK(trace["traceEvents"].is_array());
}

TEST_CASE("A view appears whole or not at all") {
  const TemporaryDirectory directory;
  const Timeline timeline = timeline_of(TrainingRun{});
  CHECK_THAT(thrown<std::system_error>(
                 [&] { write_chrome_trace(timeline, directory / "missing/trace.json"); }),
             Mentions("missing/trace.json"));
  std::filesystem::create_directory(directory / "taken");
  std::filesystem::create_directory(directory / "taken/full");
  CHECK_THROWS_AS(write_chrome_trace(timeline, directory / "taken"), std::system_error);
  for (const auto& entry : std::filesystem::directory_iterator(directory / ""))
    CHECK(entry.path().filename() == "taken");

  std::ofstream(directory / "trace.json") << "what was there before";
  write_chrome_trace(timeline, directory / "trace.json");
  CHECK(Json::parse(std::ifstream(directory / "trace.json")).is_object());
}

}  // namespace penstock::test
