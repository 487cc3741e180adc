// SPDX-License-Identifier: Apache-2.0
#include "summary.hpp"

#include "../kernel_names.hpp"
#include "../labels.hpp"
#include "../memory_levels.hpp"
#include "../report_json.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Writes the list `name`, with one object for each item, to which `members` adds the members.
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

/// Kinds and directions are the numbers of the enumerations; a class is a row of eight numbers.
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
    json.member("lane", track.kind == Track::Kind::lane);
    // It is text, because an id may exceed the range of JavaScript's numbers.
    json.member("id", std::to_string(track.id)).member("title", title(track));
    json.member("rank", track.rank);
  });
}

/// Writes the colours that the program gave to its ranges: the first one of each name.
void write_colours(JsonText& json, const Timeline& timeline) {
  std::vector<std::uint32_t> colors(timeline.names.size());
  for (const Event& event : timeline.events)
    if (event.kind == Kind::range && colors[event.name] == 0) colors[event.name] = event.color;
  json.key("colours").begin_array();
  for (std::size_t name = 0; name < colors.size(); ++name)
    if (colors[name] != 0)
      json.begin_array().value(name).value(color_text(colors[name])).end_array();
  json.end_array();
}

/// Writes rows of device, time and bytes, as many as a page can draw quickly.
void write_memory(JsonText& json, const Timeline& timeline) {
  constexpr std::size_t kMost = 20'000;
  json.key("memory").begin_array();
  for (const MemoryLevel& level : MemoryLevels::thinned(timeline.memory, kMost))
    json.begin_array()
        .value(level.device)
        .value(level.begin - timeline.begin)
        .value(level.bytes)
        .end_array();
  json.end_array();
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
  write_colours(json, timeline);
  write_memory(json, timeline);
  append(json.key("report").begin_object(), report, timeline.begin);
  append(json.end_object().key("findings"), findings, timeline.begin);
  json.end_object();
  return json.text();
}

}  // namespace penstock::trace::detail
