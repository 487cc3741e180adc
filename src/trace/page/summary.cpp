// SPDX-License-Identifier: Apache-2.0
#include "summary.hpp"

#include "../json_text.hpp"
#include "../kernel_names.hpp"
#include "../labels.hpp"

namespace penstock::trace::detail {

namespace {

/// The list `name`, one object for each item, with what `members` puts into it.
template <class Items, class Members>
void list(JsonText& json, const char* name, const Items& items, Members members) {
  json.key(name).begin_array();
  for (const auto& item : items) {
    json.begin_object();
    members(item);
    json.end_object();
  }
  json.end_array();
}

void write_origin(JsonText& json, const Origin& origin) {
  json.key("origin").begin_object();
  json.member("program", origin.program).member("host", origin.host);
  json.member("process", origin.process).member("rank", origin.rank);
  json.member("device", origin.device).member("recorder", origin.recorder);
  json.member("emulated", origin.emulated).member("started", origin.started);
  json.end_object();
}

/// Numbers of kinds and directions are the enumerations'; a class is a row of eight numbers.
void write_vocabulary(JsonText& json, const Timeline& timeline,
                      const std::vector<EventClass>& classes) {
  json.key("names").begin_array();
  for (const std::string& name : timeline.names) json.value(readable(name));
  json.end_array().key("kinds").begin_array();
  for (int kind = 0; kind <= static_cast<int>(Kind::range); ++kind)
    json.value(label(static_cast<Kind>(kind)));
  json.end_array().key("directions").begin_array();
  for (int direction = 0; direction <= static_cast<int>(Direction::host_to_host); ++direction)
    json.value(label(static_cast<Direction>(direction)));
  json.end_array().key("classes").begin_array();
  for (const EventClass& one : classes) {
    json.begin_array();
    json.value(static_cast<int>(one.kind)).value(static_cast<int>(one.direction));
    json.value(one.flags).value(one.name).value(one.track).value(one.domain).value(one.stage);
    json.value(one.works ? 1 : 0);
    json.end_array();
  }
  json.end_array();
  list(json, "tracks", timeline.tracks, [&](const Track& track) {
    json.member("stream", track.kind == Track::Kind::stream).member("device", track.device);
    // As text: an id may be more than JavaScript's numbers hold.
    json.member("id", std::to_string(track.id)).member("title", title(track));
  });
}

void write_tables(JsonText& json, const Report& report, Time begin) {
  list(json, "ranges", report.ranges, [&](const RangeTimes& range) {
    json.member("name", range.name).member("domain", range.domain).member("count", range.count);
    json.member("total", range.total).member("mean", range.mean).member("median", range.median);
    json.member("p99", range.p99).member("longest", range.longest).member("device", range.device);
  });
  list(json, "kernels", report.kernels, [&](const KernelTimes& kernel) {
    json.member("name", kernel.name).member("count", kernel.count).member("total", kernel.total);
    json.member("mean", kernel.mean).member("longest", kernel.longest);
  });
  list(json, "copies", report.copies, [&](const CopyTimes& copies) {
    json.member("direction", label(copies.direction)).member("pageable", copies.pageable);
    json.member("synchronous", copies.synchronous).member("count", copies.count);
    json.member("bytes", copies.bytes).member("total", copies.total);
    json.member("bandwidth", copies.bandwidth).member("best", copies.best);
  });
  list(json, "calls", report.calls, [&](const CallTimes& call) {
    json.member("name", call.name).member("count", call.count).member("total", call.total);
    json.member("longest", call.longest);
  });
  list(json, "devices", report.devices, [&](const DeviceTimes& device) {
    json.member("device", device.device).member("name", device.name).member("busy", device.busy);
    json.member("compute", device.compute).member("copy", device.copy);
    json.member("overlap", device.overlap).member("idle", device.idle);
  });
  list(json, "gaps", report.gaps, [&](const Gap& gap) {
    json.member("device", gap.device).member("begin", gap.begin - begin);
    json.member("end", gap.end - begin).member("cpu", gap.cpu).member("next", gap.next);
  });
}

void write_report(JsonText& json, const Report& report, Time begin) {
  json.key("report").begin_object();
  json.member("begin", report.begin - begin).member("end", report.end - begin);
  json.member("steps", report.steps).member("step_name", report.step_name);
  json.member("samples_per_second", report.samples_per_second);
  json.member("step_mean", report.step_mean).member("step_median", report.step_median);
  json.member("step_p99", report.step_p99);
  write_tables(json, report, begin);
  json.end_object();
}

}  // namespace

std::string page_summary(const Timeline& timeline, const Report& report,
                         const std::vector<Finding>& findings,
                         const std::vector<EventClass>& classes) {
  JsonText json;
  json.begin_object();
  write_origin(json, timeline.origin);
  json.member("duration", timeline.end - timeline.begin);
  json.member("events", timeline.events.size()).member("dropped", timeline.dropped);
  write_vocabulary(json, timeline, classes);
  write_report(json, report, timeline.begin);
  list(json, "findings", findings, [&](const Finding& finding) {
    json.member("rule", to_string(finding.rule)).member("count", finding.count);
    json.member("cost", finding.cost).member("share", finding.share);
    json.member("begin", finding.begin - timeline.begin);
    json.member("end", finding.end - timeline.begin).member("track", finding.track);
    json.member("evidence", finding.evidence).member("remedy", finding.remedy);
  });
  json.end_object();
  return json.text();
}

}  // namespace penstock::trace::detail
