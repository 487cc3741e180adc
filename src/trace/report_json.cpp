// SPDX-License-Identifier: Apache-2.0
#include "report_json.hpp"

#include <ostream>

#include "labels.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace detail {

namespace {

void add(JsonText& json, const RangeTimes& range) {
  json.member("name", range.name).member("domain", range.domain).member("count", range.count);
  json.member("total", range.total).member("mean", range.mean).member("median", range.median);
  json.member("p99", range.p99).member("longest", range.longest).member("device", range.device);
}

void add(JsonText& json, const KernelTimes& kernel) {
  json.member("name", kernel.name).member("count", kernel.count).member("total", kernel.total);
  json.member("mean", kernel.mean).member("longest", kernel.longest);
}

void add(JsonText& json, const CopyTimes& copies) {
  json.member("direction", label(copies.direction)).member("pageable", copies.pageable);
  json.member("synchronous", copies.synchronous).member("count", copies.count);
  json.member("bytes", copies.bytes).member("total", copies.total);
  json.member("bandwidth", copies.bandwidth).member("best", copies.best);
}

void add(JsonText& json, const CallTimes& call) {
  json.member("name", call.name).member("count", call.count).member("total", call.total);
  json.member("longest", call.longest).member("polling", call.polling);
}

void add(JsonText& json, const DeviceTimes& device) {
  json.member("device", device.device).member("name", device.name).member("busy", device.busy);
  json.member("compute", device.compute).member("copy", device.copy);
  json.member("overlap", device.overlap).member("idle", device.idle);
  if (device.video_engines >= 0) json.member("video_engines", device.video_engines);
}

void add(JsonText& json, const DeviceMemory& memory, Time zero) {
  json.member("device", memory.device).member("begin", memory.begin).member("peak", memory.peak);
  json.member("end", memory.end).member("peak_at", memory.peak_at - zero);
  json.member("changes", memory.changes);
}

void add(JsonText& json, const Gap& gap, Time zero) {
  json.member("device", gap.device);
  json.member("begin", gap.begin - zero).member("end", gap.end - zero);
  json.member("cpu", gap.cpu).member("cause", to_string(gap.cause)).member("next", gap.next);
}

void add(JsonText& json, const Finding& finding, Time zero) {
  json.member("rule", to_string(finding.rule)).member("count", finding.count);
  json.member("cost", finding.cost).member("share", finding.share);
  json.member("begin", finding.begin - zero).member("end", finding.end - zero);
  json.member("track", finding.track);
  json.member("evidence", finding.evidence).member("remedy", finding.remedy);
}

/// `zero` is for rows with moments.
template <class Rows, class... Zero>
void add_rows(JsonText& json, const Rows& rows, Zero... zero) {
  json.begin_array();
  for (const auto& row : rows) {
    json.begin_object();
    add(json, row, zero...);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

void append(JsonText& json, const Origin& origin) {
  json.member("program", origin.program).member("host", origin.host);
  json.member("process", origin.process).member("rank", origin.rank);
  json.member("world_size", origin.world_size);
  json.member("device", origin.device).member("recorder", origin.recorder);
  json.member("emulated", origin.emulated).member("started", origin.started);
  json.member("excerpt", origin.excerpt);
}

void append(JsonText& json, const Report& report, Time zero) {
  json.member("begin", report.begin - zero).member("end", report.end - zero);
  json.member("steps", report.steps).member("step_name", report.step_name);
  json.member("first_step", report.first_step);
  json.member("samples_per_second", report.samples_per_second);
  json.member("step_mean", report.step_mean).member("step_median", report.step_median);
  json.member("step_p99", report.step_p99).member("dropped", report.dropped);
  add_rows(json.key("ranges"), report.ranges);
  add_rows(json.key("kernels"), report.kernels);
  add_rows(json.key("copies"), report.copies);
  add_rows(json.key("calls"), report.calls);
  add_rows(json.key("devices"), report.devices);
  add_rows(json.key("memory"), report.memory, zero);
  add_rows(json.key("gaps"), report.gaps, zero);
}

void append(JsonText& json, const std::vector<Finding>& findings, Time zero) {
  add_rows(json, findings, zero);
}

}  // namespace detail

void write_json(const Report& report, std::ostream& out) {
  detail::JsonText json;
  detail::append(json.begin_object().key("origin").begin_object(), report.origin);
  json.end_object();
  detail::append(json, report, 0);
  out << json.end_object().text();
}

void write_json(const std::vector<Finding>& findings, std::ostream& out) {
  detail::JsonText json;
  detail::append(json, findings, 0);
  out << json.text();
}

}  // namespace penstock::trace
