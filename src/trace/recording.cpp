// SPDX-License-Identifier: Apache-2.0
//
// The file consists of a magic number and the version, the timeline, and the hash of both. Numbers
// have this machine's memory format; the lengths of texts and lists precede them.

#include <penstock/trace/recording.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "programs/output_file.hpp"
#include "recording_hash.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

// It ends with a byte that is not text and a line break, so a file that was transferred as text is
// detected.
constexpr std::array<char, 16> kMagic{'p', 'e', 'n', 's', 't', 'o', 'c',    'k',
                                      ' ', 't', 'r', 'a', 'c', 'e', '\xb1', '\n'};
constexpr std::uint32_t kVersion = 5;
// The first version that is read, which has no use of video engines.
constexpr std::uint32_t kFirstVersion = 4;
// The size of an event in the file: its members without the padding.
constexpr std::size_t kEventBytes = 3 * 8 + 4 * 4 + 2 + 2 + 4;
constexpr std::size_t kLevelBytes = 3 * 8;
constexpr std::size_t kUseBytes = 2 * 8 + 4;
constexpr int kDevicesAtMost = 4096;  // more than a process can have
// The limit of times and of their sums: half of the range of Time.
constexpr Time kMostTime = Time{1} << 62;

// ---- Writing

class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : file_(path, programs::can_be_made_again) {}

  template <class Number>
  void number(Number value) {
    static_assert(std::is_trivially_copyable_v<Number>);
    bytes(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes(value.data(), value.size());
  }
  void bytes(const char* data, std::size_t size) {
    hash_.add(data, size);
    file_.write(data, size);
  }

  /// Completes the file, which exists afterwards.
  void finish() {
    number(hash_.value());
    file_.commit();
  }

 private:
  programs::OutputFile file_;
  detail::RecordingHash hash_;
};

void write(Writer& out, const Origin& origin) {
  for (const std::string* text : {&origin.program, &origin.host, &origin.device, &origin.recorder})
    out.text(*text);
  out.number(origin.process);
  out.number(std::int64_t{origin.rank});
  out.number(std::int64_t{origin.world_size});
  out.number(std::uint64_t{origin.emulated});
  out.number(origin.started);
  out.number(origin.wall_clock);
  out.text(origin.excerpt);
}

void write(Writer& out, const Track& track) {
  out.number(static_cast<std::uint64_t>(track.kind));
  out.number(std::int64_t{track.device});
  out.number(track.id);
  out.text(track.name);
}

void write(Writer& out, const Event& event) {
  out.number(event.begin);
  out.number(event.end);
  out.number(event.value);
  out.number(event.correlation);
  out.number(event.name);
  out.number(event.track);
  out.number(event.domain);
  out.number(static_cast<std::uint8_t>(event.kind));
  out.number(static_cast<std::uint8_t>(event.direction));
  out.number(event.flags);
  out.number(event.color);
}

void write(Writer& out, const MemoryLevel& level) {
  out.number(level.begin);
  out.number(level.bytes);
  out.number(std::int64_t{level.device});
}

void write(Writer& out, const EngineUse& use) {
  out.number(use.time);
  out.number(use.percent);
  out.number(std::int64_t{use.device});
}

// ---- Reading

/// Pipes and devices may have no end. For a folder, read() gives the error.
bool is_regular_or_folder(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path) {
    // With O_NONBLOCK, opening a pipe without a writer does not wait forever.
    const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0) refuse(std::strerror(errno));  // NOLINT(concurrency-mt-unsafe)
    if (!is_regular_or_folder(file)) {
      ::close(file);
      refuse("no recording of penstock::trace: it is no regular file");
    }
    std::string buffer(std::size_t{1} << 16, '\0');
    ::ssize_t got = 0;
    // If the file is not a recording, the rest is not read.
    while (begins_as_recording() && (got = ::read(file, buffer.data(), buffer.size())) > 0)
      data_.append(buffer.data(), static_cast<std::size_t>(got));
    const int error = errno;
    ::close(file);
    if (got < 0) refuse(std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
  }

  template <class Number>
  Number number() {
    Number value{};
    bytes(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  /// Reads the number of items of at least `each` bytes. A number that does not fit the file is
  /// damage, and nothing is allocated for it.
  std::size_t count(std::size_t each) {
    const auto value = number<std::uint64_t>();
    if (value > (data_.size() - place_) / each) refuse_damage("it ends too early");
    return static_cast<std::size_t>(value);
  }
  std::string text() {
    std::string value(count(1), '\0');
    bytes(value.data(), value.size());
    return value;
  }
  void bytes(char* to, std::size_t size) {
    if (size > data_.size() - place_) refuse_damage("it ends too early");
    std::memcpy(to, data_.data() + place_, size);
    place_ += size;
  }

  std::uint64_t hash_so_far() const {
    detail::RecordingHash hash;
    hash.add(data_.data(), place_);
    return hash.value();
  }
  bool at_end() const { return place_ == data_.size(); }
  void require(bool good, const char* what) const {
    if (!good) refuse_damage(what);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::runtime_error(path_.string() + ": " + why);
  }
  [[noreturn]] void refuse_damage(const std::string& what) const {
    refuse("a damaged recording: " + what);
  }

 private:
  bool begins_as_recording() const {
    const std::size_t there = std::min(data_.size(), kMagic.size());
    return std::equal(kMagic.begin(), kMagic.begin() + there, data_.begin());
  }

  std::filesystem::path path_;
  std::string data_;
  std::size_t place_ = 0;
};

/// Returns the version of the format.
std::uint32_t read_header(Reader& in) {
  std::array<char, kMagic.size()> magic{};
  in.bytes(magic.data(), magic.size());
  if (magic != kMagic) in.refuse("no recording of penstock::trace");
  const auto version = in.number<std::uint32_t>();
  if (version < kFirstVersion || version > kVersion)
    in.refuse("a recording of format version " + std::to_string(version) + ", this is version " +
              std::to_string(kVersion) + ": read it with the penstock that wrote it");
  return version;
}

Origin read_origin(Reader& in) {
  Origin origin;
  for (std::string* text : {&origin.program, &origin.host, &origin.device, &origin.recorder})
    *text = in.text();
  origin.process = in.number<std::int64_t>();
  origin.rank = static_cast<int>(in.number<std::int64_t>());
  origin.world_size = static_cast<int>(in.number<std::int64_t>());
  origin.emulated = in.number<std::uint64_t>() != 0;
  origin.started = in.number<std::int64_t>();
  origin.wall_clock = in.number<std::int64_t>();
  origin.excerpt = in.text();
  return origin;
}

Track read_track(Reader& in) {
  Track track;
  const auto kind = in.number<std::uint64_t>();
  in.require(kind <= 2, "a track of an unknown kind");
  track.kind = static_cast<Track::Kind>(kind);
  track.device = static_cast<int>(in.number<std::int64_t>());
  track.id = in.number<std::uint64_t>();
  track.name = in.text();
  return track;
}

Event read_event(Reader& in) {
  Event event;
  event.begin = in.number<Time>();
  event.end = in.number<Time>();
  event.value = in.number<std::uint64_t>();
  event.correlation = in.number<std::uint32_t>();
  event.name = in.number<std::uint32_t>();
  event.track = in.number<std::uint32_t>();
  event.domain = in.number<std::uint32_t>();
  event.kind = static_cast<Kind>(in.number<std::uint8_t>());
  event.direction = static_cast<Direction>(in.number<std::uint8_t>());
  event.flags = in.number<std::uint16_t>();
  event.color = in.number<std::uint32_t>();
  return event;
}

int read_device(Reader& in, const char* why_not) {
  const auto device = in.number<std::int64_t>();
  in.require(device >= 0 && device < kDevicesAtMost, why_not);
  return static_cast<int>(device);
}

MemoryLevel read_level(Reader& in) {
  MemoryLevel level;
  level.begin = in.number<Time>();
  level.bytes = in.number<std::uint64_t>();
  level.device = read_device(in, "memory of no device");
  return level;
}

EngineUse read_use(Reader& in) {
  EngineUse use;
  use.time = in.number<Time>();
  use.percent = in.number<std::uint32_t>();
  use.device = read_device(in, "video engines of no device");
  return use;
}

/// Makes sure that no sum of times overflows: of the events' durations, and of the losses of each
/// device.
void check_times(const Reader& in, const Timeline& timeline) {
  in.require(timeline.origin.wall_clock >= 0 && timeline.origin.wall_clock <= kMostTime,
             "a year that no clock shows");
  in.require(timeline.begin >= -kMostTime / 2 && timeline.end <= kMostTime / 2,
             "times that no clock shows");
  std::set<int> devices;
  for (const Track& track : timeline.tracks)
    if (track.kind == Track::Kind::stream) devices.insert(track.device);
  const auto count = static_cast<Time>(std::max<std::size_t>(1, devices.size()));
  in.require(timeline.end - timeline.begin <= kMostTime / count, "it lasts for centuries");
  Time sum = 0;
  for (const Event& event : timeline.events) {
    in.require(event.duration() <= kMostTime - sum, "its events last for centuries");
    sum += event.duration();
  }
}

void check(const Reader& in, const Timeline& timeline) {
  in.require(!timeline.names.empty() && timeline.names[0].empty(), "its first name is not empty");
  in.require(timeline.begin <= timeline.end, "its end is before its begin");
  auto kind = Track::Kind::stream;
  for (const Track& track : timeline.tracks) {
    in.require(kind <= track.kind, "tracks out of order");
    kind = track.kind;
    // Views have a row for each device up to the last one.
    in.require(kind != Track::Kind::stream || (track.device >= 0 && track.device < kDevicesAtMost),
               "a stream of no device");
  }
  Time latest = timeline.begin;
  for (const Event& event : timeline.events) {
    in.require(event.kind <= Kind::range && event.direction <= Direction::host_to_host,
               "an event of an unknown kind");
    in.require(event.name < timeline.names.size() && event.domain < timeline.names.size() &&
                   event.track < timeline.tracks.size(),
               "an event without a name or a track");
    in.require((timeline.tracks[event.track].kind == Track::Kind::stream) == on_device(event.kind),
               "an event on a track of the other kind");
    in.require(timeline.tracks[event.track].kind != Track::Kind::lane || event.kind == Kind::range,
               "a call in a lane");
    in.require(event.begin >= latest && event.end >= event.begin && event.end <= timeline.end,
               "events out of order");
    latest = event.begin;
  }
  latest = timeline.begin;
  for (const MemoryLevel& level : timeline.memory) {
    in.require(level.begin >= latest && level.begin <= timeline.end, "memory out of order");
    latest = level.begin;
  }
  latest = timeline.begin;
  for (const EngineUse& use : timeline.engine_use) {
    in.require(use.time >= latest && use.time <= timeline.end && use.percent <= 100,
               "video engines out of order");
    latest = use.time;
  }
}

}  // namespace

void save(const Timeline& timeline, const std::filesystem::path& path) {
  Writer out(path);
  out.bytes(kMagic.data(), kMagic.size());
  out.number(kVersion);
  write(out, timeline.origin);
  out.number(timeline.begin);
  out.number(timeline.end);
  out.number(timeline.dropped);
  out.number(static_cast<std::uint64_t>(timeline.names.size()));
  for (const std::string& name : timeline.names) out.text(name);
  out.number(static_cast<std::uint64_t>(timeline.tracks.size()));
  for (const Track& track : timeline.tracks) write(out, track);
  out.number(static_cast<std::uint64_t>(timeline.events.size()));
  for (const Event& event : timeline.events) write(out, event);
  out.number(static_cast<std::uint64_t>(timeline.memory.size()));
  for (const MemoryLevel& level : timeline.memory) write(out, level);
  out.number(static_cast<std::uint64_t>(timeline.engine_use.size()));
  for (const EngineUse& use : timeline.engine_use) write(out, use);
  out.finish();
}

Timeline load(const std::filesystem::path& path) {
  Reader in(path);
  const std::uint32_t version = read_header(in);
  Timeline timeline;
  timeline.origin = read_origin(in);
  timeline.begin = in.number<Time>();
  timeline.end = in.number<Time>();
  timeline.dropped = in.number<std::uint64_t>();
  timeline.names.resize(in.count(sizeof(std::uint64_t)));
  for (std::string& name : timeline.names) name = in.text();
  timeline.tracks.resize(in.count(4 * sizeof(std::uint64_t)));
  for (Track& track : timeline.tracks) track = read_track(in);
  timeline.events.resize(in.count(kEventBytes));
  for (Event& event : timeline.events) event = read_event(in);
  timeline.memory.resize(in.count(kLevelBytes));
  for (MemoryLevel& level : timeline.memory) level = read_level(in);
  if (version > kFirstVersion) timeline.engine_use.resize(in.count(kUseBytes));
  for (EngineUse& use : timeline.engine_use) use = read_use(in);
  const std::uint64_t hash = in.hash_so_far();
  in.require(in.number<std::uint64_t>() == hash, "its hash is not that of its content");
  in.require(in.at_end(), "there is more behind its end");
  check(in, timeline);
  check_times(in, timeline);
  return timeline;
}

}  // namespace penstock::trace
