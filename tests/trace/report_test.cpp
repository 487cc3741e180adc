// SPDX-License-Identifier: Apache-2.0

// Report: figures of timelines whose figures are known.

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <penstock/trace/report.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "kernel_names.hpp"
#include "support/catch.hpp"
#include "timeline_builder.hpp"
#include "units.hpp"

using namespace penstock::trace;
using penstock::test::TimelineBuilder;
using penstock::test::us;

namespace {

/// Four steps of 1 ms: 100 us to load, a copy of 300 us beside the second kernel, two kernels of
/// 400 us; the first one waits for its launch after the loading.
TimelineBuilder four_steps() {
  TimelineBuilder builder;
  const auto compute = builder.stream(0, 13, "compute"), copies = builder.stream(0, 14, "copy");
  const auto main = builder.thread(4711, "main");
  for (int i = 0; i < 4; ++i) {
    const double at = i * 1000.0;
    builder.range(main, "step", {at, at + 1000}, "ladder");
    builder.range(main, "get batch", {at, at + 100}, "ladder");
    builder.range(main, "forward", {at + 110, at + 150});
    builder.launch(main, compute, "_ZN3net4convIfLi3EEEvPKT_PS1_", {at + 120, at + 125},
                   {at + 200, at + 600});
    builder.launch(main, compute, "_ZN3net4normEPf", {at + 130, at + 135}, {at + 600, at + 1000});
    builder.range(main, "copy batch", {at + 160, at + 190});
    builder.copy(main, copies, 3 << 20, {at + 165, at + 170}, {at + 650, at + 950});
  }
  builder.origin() = {.program = "train --steps 4",
                      .host = "node7",
                      .process = 4711,
                      .rank = 1,
                      .device = "NVIDIA H200",
                      .recorder = "CUPTI 13.0"};
  return builder;
}

const RangeTimes& range(const Report& report, const std::string& name) {
  for (const RangeTimes& times : report.ranges)
    if (times.name == name) return times;
  FAIL("no range " << name);
  throw;
}

std::string text_of(const Report& report) {
  std::ostringstream text;
  text << report;
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string golden(const std::string& name) {
  std::ifstream file(std::string(PENSTOCK_TRACE_GOLDEN) + "/" + name);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("Steps are measured without the first") {
  const Report report(four_steps().timeline(), {.samples_per_step = 32});
  CHECK(report.begin == us(1000));
  CHECK(report.end == us(4000));
  CHECK(report.steps == 3);
  CHECK(report.step_name == "step");
  CHECK(report.first_step == us(1000));
  CHECK(report.step_mean == us(1000));
  CHECK(report.step_median == us(1000));
  CHECK(report.samples_per_second == Approx(32'000));

  const Report all(four_steps().timeline(), {.first_step = true});
  CHECK(all.begin == 0);
  CHECK(all.steps == 4);
  CHECK(all.first_step == 0);
  CHECK(all.samples_per_second == 0);
}

TEST_CASE("Ranges have their time on the host, and that of their work on the device") {
  const Report report(four_steps().timeline());
  CHECK(range(report, "step").count == 3);
  CHECK(range(report, "step").domain == "ladder");
  CHECK(range(report, "step").total == us(3000));
  CHECK(range(report, "step").device == us(3 * 800));  // the copies are beside the kernels
  CHECK(range(report, "get batch").mean == us(100));
  CHECK(range(report, "get batch").device == 0);
  CHECK(range(report, "forward").median == us(40));
  CHECK(range(report, "forward").device == us(3 * 800));
  CHECK(range(report, "copy batch").device == us(3 * 300));
  CHECK(report.ranges.front().name == "step");
}

TEST_CASE("A range around all steps counts as far as it is measured") {
  TimelineBuilder builder = four_steps();
  builder.range(2, "entire training", {-500, 9000});
  builder.range(2, "before", {-500, 1000});
  builder.range(2, "after", {4000, 5000});
  const Report report(builder.timeline());
  CHECK(range(report, "entire training").total == us(3000));
  CHECK(range(report, "entire training").device == us(3 * 800));
  for (const RangeTimes& times : report.ranges)
    CHECK((times.name != "before" && times.name != "after"));
}

TEST_CASE("Ranges of one name that overlap have their work once") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13), main = builder.thread(1);
  builder.range(main, "in flight", {0, 100});
  builder.range(main, "in flight", {10, 200});
  builder.range(main, "in flight", {20, 90});
  builder.launch(main, stream, "a", {50, 55}, {60, 100});
  builder.launch(main, stream, "b", {150, 155}, {160, 190});
  builder.launch(main, stream, "c", {250, 255}, {260, 290});
  const Report report(builder.timeline());
  CHECK(range(report, "in flight").count == 3);
  CHECK(range(report, "in flight").total == us(100 + 190 + 70));
  CHECK(range(report, "in flight").device == us(40 + 30));
  const Report steps(builder.timeline(), {.step = "in flight", .first_step = true});
  CHECK(steps.steps == 2);  // the third is within the second
}

TEST_CASE("Devices: busy, copies under kernels, idle") {
  const Report report(four_steps().timeline());
  REQUIRE(report.devices.size() == 1);
  const DeviceTimes& device = report.devices[0];
  CHECK(device.name == "NVIDIA H200");
  CHECK(device.busy == us(2400));
  CHECK(device.compute == us(2400));
  CHECK(device.copy == us(900));
  CHECK(device.overlap == us(900));
  CHECK(device.idle == Approx(0.2));
}

TEST_CASE("Devices: how busy the video engines were while it was measured") {
  Timeline timeline = four_steps().timeline();
  CHECK(Report(timeline).devices[0].video_engines == -1);
  CHECK(text_of(Report(timeline)).find("video") == std::string::npos);
  const Report whole(timeline);
  timeline.engine_use = {{whole.begin - 1, 5, 0},
                         {whole.begin + 1, 80, 0},
                         {whole.begin + 2, 7, 1},
                         {whole.begin + 3, 100, 0}};
  const Report report(timeline);
  CHECK(report.devices[0].video_engines == Approx(0.9));
  CHECK(text_of(report).find("its video engines are busy 90.0 % of the time") != std::string::npos);
}

TEST_CASE("Memory: the peak, what is left, and what changed while it was measured") {
  TimelineBuilder builder = four_steps();
  CHECK(Report(builder.timeline()).memory.empty());
  CHECK(text_of(Report(builder.timeline())).find("memory") == std::string::npos);
  builder.memory(0, 0, 1 << 20);
  builder.memory(0, 500, 3 << 20);  // in the first step
  builder.memory(1, 600, 5 << 20);  // of a device that does nothing
  builder.memory(0, 1500, 4 << 20);
  builder.memory(0, 2500, 4 << 20);  // no change
  builder.memory(0, 2600, 2 << 20);
  const Report report(builder.timeline());
  REQUIRE(report.memory.size() == 2);
  const DeviceMemory &first = report.memory[0], &second = report.memory[1];
  CHECK(first.device == 0);
  CHECK(first.begin == 1 << 20);
  CHECK(first.peak == 4 << 20);
  CHECK(first.peak_at == us(1500));
  CHECK(first.end == 2 << 20);
  CHECK(first.changes == 2);
  CHECK(second.device == 1);
  CHECK(second.peak == 5 << 20);
  CHECK(second.end == 5 << 20);
  CHECK(second.changes == 0);
  const std::string text = text_of(report);
  CHECK(text.find("memory of device 0: at most 4.00 MiB, at 500 us; 2.00 MiB at the end; 2 changes "
                  "while measured\n") != std::string::npos);
  CHECK(text.find("memory of device 1: at most 5.00 MiB, before what is measured; 5.00 MiB at the "
                  "end; no change while measured\n") != std::string::npos);
  std::ostringstream json;
  write_json(report, json);
  const nlohmann::json memory = nlohmann::json::parse(json.str())["memory"];
  REQUIRE(memory.size() == 2);
  CHECK(memory[0]["peak"] == 4 << 20);
  CHECK(memory[0]["peak_at"] == us(1500));
  CHECK(memory[0]["begin"] == 1 << 20);
  CHECK(memory[0]["end"] == 2 << 20);
  CHECK(memory[0]["changes"] == 2);
  CHECK(memory[1]["device"] == 1);
}

TEST_CASE("Kernels, copies and calls by what they took") {
  const Report report(four_steps().timeline(), {.device_to_host = 1e9});
  REQUIRE(report.kernels.size() == 2);
  CHECK(report.kernels[0].name == "net::conv<float, 3>");
  CHECK(report.kernels[0].count == 3);
  CHECK(report.kernels[0].total == us(1200));
  CHECK(report.kernels[0].mean == us(400));
  CHECK(report.kernels[1].name == "net::norm");
  REQUIRE(report.copies.size() == 1);
  CHECK(report.copies[0].direction == Direction::host_to_device);
  CHECK(report.copies[0].bytes == 9 << 20);
  CHECK(report.copies[0].bandwidth == Approx((3 << 20) / 300e-6));
  CHECK(report.copies[0].best == Approx((3 << 20) / 300e-6));
  REQUIRE(report.calls.size() == 2);
  CHECK(report.calls[0].name == "cudaLaunchKernel");
  CHECK(report.calls[0].count == 6);
  CHECK(report.calls[0].total == us(30));
}

TEST_CASE("Calls by which penstock polls its own copies are counted apart") {
  TimelineBuilder builder;
  const auto main = builder.thread(1, "main thread"), worker = builder.thread(2, "penstock worker"),
             readback = builder.thread(3, "penstock readback");
  builder.range(worker, "wait for memory", {10, 50}, "penstock");
  builder.range(worker, "wait for memory", {60, 70}, "mine");
  builder.range(readback, "readback", {100, 200}, "penstock");
  for (const double at : {11, 20, 49}) builder.call(worker, "cudaEventQuery_v3020", {at, at + 1});
  builder.call(worker, "cudaThreadExchangeStreamCaptureMode_v10010", {12, 13});
  builder.call(worker, "cudaHostAlloc_v3020", {30, 31});   // It polls nothing.
  builder.call(worker, "cudaEventQuery_v3020", {65, 66});  // by the user's source
  builder.call(readback, "cudaEventQuery_v3020", {90, 91});
  builder.call(readback, "cudaEventQuery_v3020", {110, 111});  // by the user's callback
  builder.call(main, "cudaEventQuery_v3020", {20, 21});
  const Report report(builder.timeline());
  std::map<std::pair<std::string, bool>, std::uint64_t> counts;
  for (const auto& call : report.calls) counts[{call.name, call.polling}] = call.count;
  CHECK(counts == std::map<std::pair<std::string, bool>, std::uint64_t>{
                      {{"cudaEventQuery", true}, 4},
                      {{"cudaEventQuery", false}, 3},
                      {{"cudaThreadExchangeStreamCaptureMode", true}, 1},
                      {{"cudaHostAlloc", false}, 1}});
  std::ostringstream text;
  text << report;
  CHECK(text.str().find("cudaThreadExchangeStreamCaptureMode (polling) ") != std::string::npos);
}

TEST_CASE("Copies are compared with the machine's best") {
  const Report report(four_steps().timeline(), {.host_to_device = 50e9});
  CHECK(report.copies[0].best == 50e9);
  TimelineBuilder small;
  const auto stream = small.stream(0, 13), main = small.thread(1);
  small.copy(main, stream, 4096, {0, 1}, {1, 2});
  CHECK(Report(small.timeline()).copies[0].best == 0);  // too small to tell
}

TEST_CASE("Copies of pageable memory and synchronous ones are kinds of their own") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13), main = builder.thread(1);
  builder.copy(main, stream, 1, {0, 1}, {0, 1});
  builder.copy(main, stream, 2, {1, 2}, {1, 3}).flags = Flag::pageable;
  builder.copy(main, stream, 3, {2, 3}, {3, 6}).flags = Flag::pageable | Flag::synchronous;
  const Report report(builder.timeline());
  REQUIRE(report.copies.size() == 3);
  CHECK((report.copies[0].pageable && report.copies[0].synchronous));
  CHECK((report.copies[1].pageable && !report.copies[1].synchronous));
  CHECK((!report.copies[2].pageable && !report.copies[2].synchronous));
}

TEST_CASE("The longest gaps tell what the CPU did, and what came then") {
  const Report report(four_steps().timeline(), {.gaps = 2});
  REQUIRE(report.gaps.size() == 2);
  CHECK(report.gaps[0].begin == us(1000));
  CHECK(report.gaps[0].end == us(1200));
  CHECK(report.gaps[0].cpu == "get batch");
  CHECK(report.gaps[0].cause == Cause::input);
  CHECK(report.gaps[0].next == "net::conv<float, 3>");
}

TEST_CASE("A gap is about the thread that submitted what ended it") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13);
  const auto main = builder.thread(1), other = builder.thread(2);
  builder.call(main, "cudaMalloc", {0, 10});
  builder.launch(main, stream, "a", {300, 305}, {310, 400});  // the time before it is no gap
  builder.call(other, "cudaDeviceSynchronize", {510, 890});
  builder.range(main, "log", {500, 800});
  builder.launch(main, stream, "b", {900, 905}, {910, 1000});
  builder.add(Kind::kernel, stream, "of nobody", {1200, 1300});
  const Report report(builder.timeline());
  REQUIRE(report.gaps.size() == 2);
  CHECK(report.gaps[0].cpu == "log");
  CHECK(report.gaps[0].cause == Cause::program);
  CHECK(report.gaps[0].next == "b");
  CHECK(report.gaps[1].cpu.empty());
  CHECK(report.gaps[1].cause == Cause::unknown);
}

TEST_CASE("Where the host runs ahead, steps end with the device's work") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13), main = builder.thread(1);
  for (int i = 0; i < 10; ++i) {  // all of it is queued within a millisecond
    builder.range(main, "step", {i * 100.0, i * 100.0 + 100});
    builder.launch(main, stream, "train", {i * 100.0, i * 100.0 + 5},
                   {10 + i * 1000.0, 10 + i * 1000.0 + 1000});
  }
  const Report report(builder.timeline());
  CHECK(report.begin == us(1010));
  CHECK(report.end == us(10'010));
  CHECK(report.steps == 9);
  CHECK(report.first_step == us(1010));
  CHECK(report.step_mean == us(1000));
  CHECK(report.devices[0].idle == 0);
  CHECK(range(report, "step").count == 9);
  CHECK(range(report, "step").device == us(9000));
}

TEST_CASE("Requests of several threads are steps, each thread's first one apart") {
  TimelineBuilder builder;
  const auto stream = builder.stream(0, 13);
  const std::uint32_t threads[] = {builder.thread(1), builder.thread(2)};
  for (int i = 0; i < 5; ++i)
    for (int t = 0; t < 2; ++t) {
      const double at = i * 1000.0 + t * 500.0;
      builder.range(threads[t], "request", {at, at + 1000});
      builder.launch(threads[t], stream, "infer", {at, at + 5}, {at + 10, at + 500});
    }
  const Report report(builder.timeline());
  CHECK(report.step_name == "request");
  CHECK(report.steps == 8);
  CHECK(report.begin == us(1000));
  CHECK(report.end == us(5500));
  CHECK(report.step_median == us(1000));
}

TEST_CASE("Two devices are told apart") {
  TimelineBuilder builder;
  const auto first = builder.stream(0, 13), second = builder.stream(1, 13);
  const auto main = builder.thread(1);
  builder.launch(main, first, "a", {0, 1}, {0, 100});
  builder.launch(main, second, "a", {0, 1}, {0, 25});
  builder.launch(main, second, "b", {1, 2}, {75, 100});
  const Report report(builder.timeline());
  REQUIRE(report.devices.size() == 2);
  CHECK(report.devices[0].idle == 0);
  CHECK(report.devices[1].device == 1);
  CHECK(report.devices[1].idle == Approx(0.5));
  REQUIRE(report.gaps.size() == 1);
  CHECK(report.gaps[0].device == 1);
  for (const std::string& line : lines_of(text_of(report)))
    if (line.find("50.0 %") != std::string::npos) CHECK(line.find(" - ") != std::string::npos);
}

TEST_CASE("Next to nothing has a report as well") {
  const Report empty{Timeline{}};
  CHECK(empty.steps == 0);
  CHECK(text_of(empty).find("no device did anything") != std::string::npos);
  for (const Kind kind : {Kind::kernel, Kind::copy, Kind::fill, Kind::host_function, Kind::graph,
                          Kind::call, Kind::range}) {
    TimelineBuilder builder;
    const auto stream = builder.stream(0, 13), main = builder.thread(1);
    builder.add(kind, on_device(kind) ? stream : main, kind == Kind::range ? "step" : "", {5, 5});
    const Report report(builder.timeline());
    CHECK(report.end - report.begin == 0);
    CHECK_FALSE(text_of(report).empty());
  }
}

TEST_CASE("What is wrong with the timeline itself is said first") {
  TimelineBuilder builder = four_steps();
  CHECK(text_of(Report(builder.timeline())).find("EMULATED") == std::string::npos);
  builder.origin().emulated = true;
  builder.drop(12);
  const Report report(builder.timeline());
  CHECK(report.dropped == 12);
  const std::vector<std::string> lines = lines_of(text_of(report));
  CHECK(lines[2].find("EMULATED") == 0);
  CHECK(lines[3].find("INCOMPLETE: 12 events were dropped") == 0);
}

TEST_CASE("The text is as it was") {
  TimelineBuilder builder = four_steps();
  builder.call(2, "cudaFree_v3020", {1700, 1750});
  CHECK(text_of(Report(builder.timeline(), {.samples_per_step = 32})) + "\n" ==
        golden("report.txt"));
}

TEST_CASE("The text is of bounded size, whatever there is") {
  TimelineBuilder builder;
  std::vector<std::uint32_t> streams;
  for (int device = 0; device < 40; ++device) streams.push_back(builder.stream(device, 13));
  const auto main = builder.thread(1);
  const std::string very_long(300, 'x'), wide = "\xC3\xA4\xC3\xB6\xC3\xBC" + std::string(200, 'w');
  for (int i = 0; i < 100; ++i) {
    const double at = i * 1e6;
    const std::string number = std::to_string(i);
    builder.range(main, "step", {at, at + 9e5}, very_long);
    builder.range(main, wide + number, {at, at + 5e5});
    builder.range(main, number + wide, {at, at + 5e5}, wide);
    builder.call(main, very_long + number, {at, at + 4e5});
    builder.launch(main, streams[static_cast<std::size_t>(i % 40)], number + very_long,
                   {at, at + 5}, {at + 6, at + 7e5});
    for (const Direction direction : {Direction::host_to_device, Direction::device_to_host,
                                      Direction::device_to_device, Direction::peer_to_peer})
      builder.copy(main, streams[0], 1ull << 40, {at, at + 5}, {at + 6, at + 7e5}, direction)
          .flags = static_cast<std::uint16_t>(i % 4);
  }
  builder.origin().program = very_long;
  builder.origin().host = very_long;
  builder.origin().device = very_long;
  builder.origin().emulated = true;
  for (int device = 0; device < 40; ++device)
    for (int i = 0; i < 100; ++i)
      builder.memory(device, i * 1e6, ~std::uint64_t{0} - static_cast<std::uint64_t>(i));
  builder.drop(1'000'000'000'000);
  const std::vector<std::string> lines =
      lines_of(text_of(Report(builder.timeline(), {.samples_per_step = 1e6, .gaps = 1000})));
  CHECK(lines.size() <= 100);
  for (const std::string& line : lines) {
    INFO(line);
    CHECK(detail::width_of(line) <= 110);
    CHECK((line.empty() || line.back() != ' '));
  }
}

TEST_CASE("Calls that may cost the loop its pace are shown, however many others there are") {
  TimelineBuilder builder;
  const auto main = builder.thread(1);
  for (int i = 0; i < 30; ++i)
    builder.call(main, "cudaGet" + std::to_string(i), {i * 100.0, i * 100.0 + 90});
  builder.call(main, "cudaMalloc_v3020", {5000, 5001});
  const std::string text = text_of(Report(builder.timeline()));
  CHECK(text.find("cudaMalloc ") != std::string::npos);
  CHECK(text.find("... and 19 more") != std::string::npos);
}

TEST_CASE("A report is an object of JSON") {
  std::ostringstream text;
  const Report report(four_steps().timeline(), {.samples_per_step = 32});
  write_json(report, text);
  const nlohmann::json json = nlohmann::json::parse(text.str());
  CHECK(json["origin"]["program"] == "train --steps 4");
  CHECK(json["steps"] == 3);
  CHECK(json["samples_per_second"].get<double>() == Approx(32'000));
  CHECK(json["ranges"].size() == report.ranges.size());
  CHECK(json["kernels"][0]["name"] == "net::conv<float, 3>");
  CHECK(json["copies"][0]["direction"] == "host to device");
  CHECK(json["calls"][0]["count"] == 6);
  CHECK(json["devices"][0]["overlap"] == us(900));
  CHECK(json["gaps"][0]["cause"] == "waits for input");
}

TEST_CASE("Names of kernels are read by people") {
  using detail::readable;
  using detail::shortened;
  CHECK(readable("train") == "train");
  CHECK(readable("_Z5scalePfi") == "scale");
  CHECK(readable("_ZN12_GLOBAL__N_14packIhEEvPKT_") ==
        "(anonymous namespace)::pack<unsigned char>");
  CHECK(readable("_Znonsense") == "_Znonsense");
  CHECK(shortened("a::b<c<d<int>, 4>, 5>", 30) == "a::b<c<d<int>, 4>, 5>");
  CHECK(shortened("a::b<c<d<int>, 4>, 5>", 20) == "a::b<c<d<..>, 4>, 5>");
  CHECK(shortened("a::b<c<d<int>, 4>, 5>", 15) == "a::b<c<..>, 5>");
  CHECK(shortened("a::b<c<d<int>, 4>, 5>", 10) == "a::b<..>");
  CHECK(shortened("a::b<c<d<int>, 4>, 5>", 6) == "a::b..");
  CHECK(shortened("operator->b<cdef>", 16) == "operator->b<..>");
  CHECK(shortened("python -c 'a\nb\x1B[31m'", 40) == "python -c 'a b [31m'");
  CHECK(shortened("\xC3\xA4\xC3\xB6\xC3\xBC", 3) == "\xC3\xA4\xC3\xB6\xC3\xBC");
  CHECK(shortened("\xC3\xA4\xC3\xB6\xC3\xBCx", 3) == "\xC3\xA4..");
}

TEST_CASE("Units suit the figures") {
  using namespace detail;
  CHECK(in_time(0) == "0 ns");
  CHECK(in_time(999) == "999 ns");
  CHECK(in_time(1'234) == "1.23 us");
  CHECK(in_time(12'345) == "12.3 us");
  CHECK(in_time(999'499) == "999 us");
  CHECK(in_time(999'500) == "1.00 ms");
  CHECK(in_time(61'000'000'000) == "61.0 s");
  CHECK(in_bytes(1023) == "1023 B");
  CHECK(in_bytes(1536) == "1.50 KiB");
  CHECK(in_bytes(std::uint64_t{5} << 30) == "5.00 GiB");
  CHECK(in_rate(24.13e9) == "24.1 GB/s");
  CHECK(in_rate(5e6) == "5.00 MB/s");
  CHECK(in_percent(0.1234) == "12.3 %");
}
