// SPDX-License-Identifier: Apache-2.0
#pragma once

// NameTables: the numbers by which events refer to names, threads and streams. Where only the last
// moments of a run are kept, tables must not grow with the run: they begin anew with each era, and
// the tables of eras are thrown away of which no event is left.

#include <penstock/trace/timeline.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace penstock::trace::detail {

using TrackKey = std::tuple<Track::Kind, int, std::uint64_t>;  // orders as a Timeline has them

inline TrackKey key_of(const Track& track) {
  return {track.kind, track.device, track.id};
}

/// The names and tracks that were first used within one stretch of time. Numbers are those of the
/// first ones and up.
struct Era {
  Time begin = 0;
  std::uint32_t first_name = 1, first_track = 0;  // name 0 is "", in all eras
  std::deque<std::string> names;                  // in place: `name_ids` points into them
  std::unordered_map<std::string_view, std::uint32_t> name_ids;
  std::deque<Track> tracks;
  std::map<TrackKey, std::uint32_t> track_ids;
  std::uint64_t dropped = 0;  ///< events that a backend had to drop
};

/// What can be read while the tables go on.
struct EraView {
  std::shared_ptr<const Era> era;  ///< the names' owner; the rest of it must not be read
  Time begin = 0;
  std::uint32_t first_name = 0, first_track = 0;
  std::vector<const std::string*> names;
  std::vector<Track> tracks;
  std::uint64_t dropped = 0;
};

/// One thread at a time, but for era().
class NameTables {
 public:
  /// An era lasts for `era` at least, and ends before that when it has `most_names`; 0: for good.
  NameTables(Time era, std::size_t most_names, Time (*clock)());

  /// Of what is current; changes when numbers have to be asked for again. Never 0, never that of
  /// other tables. A number stays good for events that are added within two more eras.
  std::uint32_t era() const { return number_.load(std::memory_order_acquire); }

  bool knows(std::string_view name) const { return name.empty() || current().name_ids.count(name); }
  std::uint32_t name(std::string_view text);
  /// Of a new thread the name is the system's, unless an event of the eras before has it.
  std::uint32_t track(const Track& wanted);
  void name_track(const Track& wanted, std::string_view name);
  void drop(std::uint64_t events) { current().dropped += events; }

  /// Ends the era if it is time to. What comes back may take long to destroy: do that elsewhere.
  [[nodiscard]] std::shared_ptr<const Era> age();
  /// The oldest first.
  std::vector<EraView> views() const;
  std::uint64_t take_dropped();

 private:
  static constexpr std::size_t kEras = 3;

  Era& current() const { return *eras_.back(); }
  std::string name_before(const TrackKey& key) const;

  const Time length_;
  const std::size_t most_names_;
  Time (*const clock_)();
  std::deque<std::shared_ptr<Era>> eras_;  // the oldest first
  std::atomic<std::uint32_t> number_;
};

}  // namespace penstock::trace::detail
