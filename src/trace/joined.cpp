// SPDX-License-Identifier: Apache-2.0
#include "joined.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

constexpr Time kSecond = 1'000'000'000;

class Joiner {
 public:
  explicit Joiner(std::span<const Timeline> parts) : parts_(parts) {}

  Joined join() {
    joined_.timeline.origin = origin();
    name("");
    joined_.tracks.resize(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) joined_.shifts.push_back(shift(parts_[i]));
    for (const Track::Kind kind : {Track::Kind::stream, Track::Kind::thread, Track::Kind::lane})
      for (std::size_t i = 0; i < parts_.size(); ++i) add_tracks(i, kind);
    joined_.timeline.begin = parts_[0].begin;
    joined_.timeline.end = parts_[0].end;
    for (std::size_t i = 0; i < parts_.size(); ++i) add_events(i);
    arrange(joined_.timeline);
    return std::move(joined_);
  }

 private:
  Origin origin() const {
    Origin origin = parts_[0].origin;
    origin.process = 0;
    origin.rank = -1;
    for (const Timeline& part : parts_.subspan(1)) {
      add_other(origin.host, part.origin.host);
      add_other(origin.device, part.origin.device);
      origin.emulated = origin.emulated || part.origin.emulated;
    }
    return origin;
  }

  static void add_other(std::string& list, const std::string& one) {
    if ((", " + list + ", ").find(", " + one + ", ") == std::string::npos) (list += ", ") += one;
  }

  Time shift(const Timeline& part) const {
    const Origin &first = parts_[0].origin, &its = part.origin;
    return same_clock(first, its) ? 0 : its.wall_clock - first.wall_clock;
  }

  std::uint32_t name(const std::string& text) {
    const auto [found, is_new] =
        names_.try_emplace(text, static_cast<std::uint32_t>(joined_.timeline.names.size()));
    if (is_new) joined_.timeline.names.push_back(text);
    return found->second;
  }

  void add_tracks(std::size_t part, Track::Kind kind) {
    std::vector<std::uint32_t>& tracks = joined_.tracks[part];
    tracks.resize(parts_[part].tracks.size());
    for (std::size_t i = 0; i < tracks.size(); ++i) {
      Track track = parts_[part].tracks[i];
      if (track.kind != kind) continue;
      if (kind == Track::Kind::stream) track.device = device(part, track.device);
      track.rank = parts_[part].origin.rank;
      tracks[i] = static_cast<std::uint32_t>(joined_.timeline.tracks.size());
      joined_.timeline.tracks.push_back(std::move(track));
    }
  }

  int device(std::size_t part, int its) {
    return devices_.try_emplace({part, its}, static_cast<int>(devices_.size())).first->second;
  }

  void add_events(std::size_t index) {
    const Timeline& part = parts_[index];
    const Time shift = joined_.shifts[index];
    std::vector<std::uint32_t> names;
    for (const std::string& text : part.names) names.push_back(name(text));
    std::uint32_t most = 0;
    for (Event event : part.events) {
      most = std::max(most, event.correlation);
      if (event.correlation > std::numeric_limits<std::uint32_t>::max() - correlations_)
        event.correlation = 0;  // No number is left, so the event stands alone.
      else if (event.correlation != 0)
        event.correlation += correlations_;
      event.begin += shift;
      event.end += shift;
      event.name = names[event.name];
      event.domain = names[event.domain];
      event.track = joined_.tracks[index][event.track];
      check_sum(event.duration());
      joined_.timeline.events.push_back(event);
    }
    for (MemoryLevel level : part.memory) {
      level.begin += shift;
      level.device = device(index, level.device);
      joined_.timeline.memory.push_back(level);
    }
    for (EngineUse use : part.engine_use) {
      use.time += shift;
      use.device = device(index, use.device);
      joined_.timeline.engine_use.push_back(use);
    }
    correlations_ += std::min(most, std::numeric_limits<std::uint32_t>::max() - correlations_);
    joined_.timeline.begin = std::min(joined_.timeline.begin, part.begin + shift);
    joined_.timeline.end = std::max(joined_.timeline.end, part.end + shift);
    joined_.timeline.dropped += part.dropped;
  }

  /// Checks that no sum of times overflows.
  void check_sum(Time duration) {
    constexpr Time kMost = Time{1} << 62;
    if (duration > kMost - sum_)
      throw std::runtime_error("recordings whose events last for centuries");
    sum_ += duration;
  }

  std::span<const Timeline> parts_;
  Joined joined_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::map<std::pair<std::size_t, int>, int> devices_;
  std::uint32_t correlations_ = 0;  // numbers in use
  Time sum_ = 0;
};

}  // namespace

bool same_clock(const Origin& a, const Origin& b) {
  return a.host == b.host &&
         std::max(a.wall_clock, b.wall_clock) - std::min(a.wall_clock, b.wall_clock) < kSecond;
}

Joined join(std::span<const Timeline> parts) {
  return Joiner(parts).join();
}

}  // namespace penstock::trace::detail
