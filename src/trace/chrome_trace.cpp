// SPDX-License-Identifier: Apache-2.0
#include <penstock/detail/observe/json.hpp>
#include <penstock/trace/views.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "activity.hpp"
#include "kernel_names.hpp"
#include "labels.hpp"
#include "nesting_rows.hpp"
#include "programs/output_file.hpp"

// The format nests the complete events ("X") of a thread by their times, and has no other way to
// show events that overlap. So a track becomes as many threads as its overlaps need, mostly one.

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

using detail::label;
using detail::limited;
using detail::readable_within_bounds;
using penstock::detail::append_number;
using penstock::detail::append_quoted;
using penstock::detail::JsonText;
using programs::OutputFile;

/// The format identifies the row of an event by a process and a thread.
struct Row {
  std::int64_t process;
  std::uint64_t thread;
};

/// The largest number of characters of a name or a track's title, which each line of their events
/// repeats.
constexpr std::size_t kLongest = 1000;

/// Appends microseconds, the format's unit, with three digits after the point, so that no
/// nanosecond is lost.
void append_microseconds(std::string& out, Time time) {
  // It is unsigned, because the magnitude of the least Time is not a Time.
  const auto nanoseconds =
      time < 0 ? 0 - static_cast<std::uint64_t>(time) : static_cast<std::uint64_t>(time);
  if (time < 0) out += '-';
  append_number(out, nanoseconds / 1000);
  const auto rest = static_cast<unsigned>(nanoseconds % 1000);
  out += '.';
  out += static_cast<char>('0' + rest / 100);
  out += static_cast<char>('0' + rest / 10 % 10);
  out += static_cast<char>('0' + rest % 10);
}

class ChromeTrace {
 public:
  ChromeTrace(const Timeline& timeline, OutputFile& file)
      : timeline_(timeline), activity_(timeline), file_(file) {
    for (const Track& track : timeline.tracks)
      if (track.kind == Track::Kind::stream) devices_ = std::max(devices_, track.device + 1);
    for (const MemoryLevel& level : timeline.memory)
      devices_ = std::max(devices_, level.device + 1);
    for (const EngineUse& use : timeline.engine_use) devices_ = std::max(devices_, use.device + 1);
    for (const std::string& name : timeline.names) {
      quoted_.emplace_back();
      append_quoted(quoted_.back(), limited(readable_within_bounds(name), kLongest));
    }
    place_events();
  }

  void write() {
    JsonText other = header();
    file_.write("{\"displayTimeUnit\":\"ns\",\"otherData\":" + other.text() + ",\"traceEvents\":[");
    write_processes();
    write_tracks();
    for (std::size_t i = 0; i < timeline_.events.size(); ++i) write_event(i);
    for (const MemoryLevel& level : timeline_.memory)
      write_counter(level.device, level.begin, "memory", "bytes", level.bytes);
    for (const EngineUse& use : timeline_.engine_use)
      write_counter(use.device, use.time, "video engines", "percent", use.percent);
    file_.write("\n]}\n");
  }

 private:
  void place_events() {
    rows_.resize(timeline_.tracks.size());
    row_of_.reserve(timeline_.events.size());
    for (const Event& event : timeline_.events)
      row_of_.push_back(static_cast<std::uint32_t>(rows_[event.track].place(event)));
  }

  /// Devices are processes with small numbers, from 1 on, unless the process itself has such a
  /// number.
  std::int64_t process_of(int device) const {
    const bool taken = timeline_.origin.process >= 1 && timeline_.origin.process <= devices_;
    return device + 1 + (taken ? timeline_.origin.process : 0);
  }

  Row row(std::uint32_t index, std::size_t number) const {
    const Track& track = timeline_.tracks[index];
    const std::int64_t process =
        track.kind == Track::Kind::stream ? process_of(track.device) : timeline_.origin.process;
    // The number of a stream is not used, because viewers take 0 for the idle thread, and the
    // number of the process for the main thread.
    std::uint64_t thread = track.id;
    if (track.kind == Track::Kind::stream) thread = kStreams + index;
    if (track.kind == Track::Kind::lane) thread = kLanes + index;
    if (number > 0) thread = kOverlapping + number * timeline_.tracks.size() + index;
    return {process, thread};
  }

  JsonText header() const {
    const Origin& origin = timeline_.origin;
    JsonText json;
    json.begin_object()
        .member("program", origin.program)
        .member("host", origin.host)
        .member("rank", origin.rank)
        .member("world_size", origin.world_size)
        .member("device", origin.device)
        .member("recorder", origin.recorder)
        .member("emulated", origin.emulated)
        .member("started", origin.started)
        .member("excerpt", origin.excerpt)
        .member("dropped_events", timeline_.dropped)
        .end_object();
    return json;
  }

  void write_name(const char* what, Row row, const std::string& name) {
    JsonText json;
    begin_metadata(json, what, row).member("name", name).end_object().end_object();
    write_line(json.text());
  }

  void write_order(const char* what, Row row, std::size_t index) {
    JsonText json;
    begin_metadata(json, what, row).member("sort_index", index).end_object().end_object();
    write_line(json.text());
  }

  static JsonText& begin_metadata(JsonText& json, const char* what, Row row) {
    return json.begin_object()
        .member("ph", "M")
        .member("name", what)
        .member("pid", row.process)
        .member("tid", row.thread)
        .key("args")
        .begin_object();
  }

  void write_processes() {
    const Origin& origin = timeline_.origin;
    for (int device = 0; device < devices_; ++device) {
      std::string name = "device " + std::to_string(device);
      if (device == 0 && !origin.device.empty()) name += ": " + origin.device;
      write_name("process_name", {process_of(device), 0}, name);
      write_order("process_sort_index", {process_of(device), 0}, static_cast<std::size_t>(device));
    }
    std::string name = origin.program.empty() ? "process" : origin.program;
    if (origin.rank >= 0) name += " (rank " + std::to_string(origin.rank) + ")";
    write_name("process_name", {origin.process, 0}, name);
    write_order("process_sort_index", {origin.process, 0}, static_cast<std::size_t>(devices_));
  }

  void write_tracks() {
    for (std::uint32_t i = 0; i < timeline_.tracks.size(); ++i) {
      const std::string track = limited(title(timeline_.tracks[i]), kLongest);
      for (std::size_t number = 0; number < std::max<std::size_t>(rows_[i].size(), 1); ++number) {
        std::string name = track;
        if (number > 0) name += " (" + std::to_string(number + 1) + ")";
        write_name("thread_name", row(i, number), name);
        write_order("thread_sort_index", row(i, number), i);
      }
    }
  }

  void write_event(std::size_t index) {
    const Event& event = timeline_.events[index];
    line_ = "{\"ph\":\"X\"";
    append_place(index, event.begin);
    line_ += ",\"dur\":";
    append_microseconds(line_, event.duration());
    line_ += ",\"name\":";
    if (event.name != 0)
      line_ += quoted_[event.name];
    else
      append_quoted(line_, label(timeline_, event));
    line_ += ",\"cat\":";
    append_quoted(line_, label(event.kind));
    line_ += ",\"args\":{";
    append_arguments(event);
    line_ += "}}";
    write_line(line_);
    if (on_device(event.kind)) write_flow(index);
  }

  /// Writes a counter of the device's process.
  void write_counter(int device, Time time, std::string_view name, std::string_view unit,
                     std::uint64_t value) {
    line_ = "{\"ph\":\"C\",\"pid\":";
    append_number(line_, process_of(device));
    line_ += ",\"ts\":";
    append_microseconds(line_, time);
    line_ += ",\"name\":\"";
    line_ += name;
    line_ += "\",\"cat\":\"";
    line_ += name;
    line_ += "\",\"args\":{\"";
    line_ += unit;
    line_ += "\":";
    append_number(line_, value);
    line_ += "}}";
    write_line(line_);
  }

  /// Joins the call with the work that it put on a stream. Each pair is a flow of its own, because
  /// a call may submit many operations (a graph).
  void write_flow(std::size_t index) {
    const Event& event = timeline_.events[index];
    const Event* call = activity_.submitter(event);
    if (call == nullptr) return;
    line_ = "{\"ph\":\"s\"";
    // The flow starts shortly after the call's begin, where a viewer may not have entered the call
    // yet.
    const Time start = call->begin + std::min<Time>(call->duration(), 1);
    append_flow(index, static_cast<std::size_t>(call - timeline_.events.data()), start);
    write_line(line_);
    line_ = "{\"ph\":\"f\",\"bp\":\"e\"";
    append_flow(index, index, event.begin);
    write_line(line_);
  }

  void append_flow(std::size_t flow, std::size_t at, Time time) {
    append_place(at, time);
    line_ += ",\"id\":";
    append_number(line_, static_cast<std::uint64_t>(flow + 1));
    line_ += ",\"name\":\"submit\",\"cat\":\"submit\"}";
  }

  void append_place(std::size_t index, Time time) {
    const Row place = row(timeline_.events[index].track, row_of_[index]);
    line_ += ",\"pid\":";
    append_number(line_, place.process);
    line_ += ",\"tid\":";
    append_number(line_, place.thread);
    line_ += ",\"ts\":";
    append_microseconds(line_, time);
  }

  void append_arguments(const Event& event) {
    if (event.kind == Kind::copy || event.kind == Kind::fill) {
      append_transfer(event);
    } else if (event.kind == Kind::range) {
      line_ += "\"payload\":";
      append_number(line_, event.value);
      if (event.domain != 0) line_ += ",\"domain\":" + quoted_[event.domain];
      if (event.color != 0) line_ += ",\"color\":\"" + detail::color_text(event.color) + '"';
    } else if (event.kind == Kind::call) {
      line_ += "\"result\":";
      append_number(line_, event.value);
      if (event.has(Flag::failed)) line_ += ",\"failed\":true";
    }
    if (event.correlation != 0) {
      append_key("correlation");
      append_number(line_, std::uint64_t{event.correlation});
    }
    if (event.has(Flag::cut)) {
      append_key("cut");
      line_ += "true";
    }
  }

  void append_key(const char* key) {
    if (line_.back() != '{') line_ += ',';
    ((line_ += '"') += key) += "\":";
  }

  void append_transfer(const Event& event) {
    line_ += "\"bytes\":";
    append_number(line_, event.value);
    if (event.duration() > 0) {
      line_ += ",\"GB/s\":";
      append_number(line_,
                    static_cast<double>(event.value) / static_cast<double>(event.duration()));
    }
    if (event.direction != Direction::none) {
      line_ += ",\"direction\":";
      append_quoted(line_, label(event.direction));
    }
    if (event.has(Flag::pageable)) line_ += ",\"pageable\":true";
    if (event.has(Flag::synchronous)) line_ += ",\"synchronous\":true";
  }

  void write_line(const std::string& json) {
    file_.write(first_ ? "\n" : ",\n");
    file_.write(json);
    first_ = false;
  }

  static constexpr std::uint64_t kStreams = 1000;
  /// These numbers are above the thread ids of Linux.
  static constexpr std::uint64_t kLanes = 1 << 23, kOverlapping = 1 << 24;

  const Timeline& timeline_;
  const detail::Activity activity_;
  OutputFile& file_;
  int devices_ = 0;
  std::vector<std::string> quoted_;  ///< the quoted names
  std::vector<detail::NestingRows> rows_;
  std::vector<std::uint32_t> row_of_;  ///< for each event, its row within its track
  std::string line_;
  bool first_ = true;
};

}  // namespace

void write_chrome_trace(const Timeline& timeline, const std::filesystem::path& path) {
  OutputFile file(path, programs::can_be_made_again);
  ChromeTrace(timeline, file).write();
  file.commit();
}

}  // namespace penstock::trace
