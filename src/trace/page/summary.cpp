// SPDX-License-Identifier: Apache-2.0
#include "summary.hpp"

#include "../kernel_names.hpp"
#include "../labels.hpp"
#include "../report_json.hpp"

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

/// Numbers of kinds and directions are the enumerations'; a class is a row of eight numbers.
void write_vocabulary(JsonText& json, const Timeline& timeline,
                      const std::vector<EventClass>& classes) {
  json.key("names").begin_array();
  for (const std::string& name : timeline.names) json.value(readable_within_bounds(name));
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
    json.member("rank", track.rank);
  });
}

}  // namespace

std::string page_summary(const Timeline& timeline, const Report& report,
                         const std::vector<Finding>& findings,
                         const std::vector<EventClass>& classes) {
  JsonText json;
  append(json.begin_object().key("origin").begin_object(), timeline.origin);
  json.end_object().member("duration", timeline.end - timeline.begin);
  json.member("events", timeline.events.size()).member("dropped", timeline.dropped);
  write_vocabulary(json, timeline, classes);
  append(json.key("report").begin_object(), report, timeline.begin);
  append(json.end_object().key("findings"), findings, timeline.begin);
  json.end_object();
  return json.text();
}

}  // namespace penstock::trace::detail
