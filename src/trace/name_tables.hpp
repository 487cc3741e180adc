// SPDX-License-Identifier: Apache-2.0
#pragma once

// NameTables: the numbers by which events refer to names, threads and streams. If only the last
// part of a run is kept, the tables must not grow with the run. So each era begins new tables, and
// the tables of eras without remaining events are discarded.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

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

namespace penstock::inline PENSTOCK_ABI::trace::detail {

using TrackKey = std::tuple<Track::Kind, int, std::uint64_t>;  // in the order of a Timeline

inline TrackKey key_of(const Track& track) {
  return {track.kind, track.device, track.id};
}

/// The names and tracks that were first used within one period of time. Their numbers count from
/// first_name and first_track.
struct Era {
  Time begin = 0;
  std::uint32_t first_name = 1, first_track = 0;  // name 0 is "" in all eras
  std::deque<std::string> names;  // elements do not move, because `name_ids` points into them
  std::unordered_map<std::string_view, std::uint32_t> name_ids;
  std::deque<Track> tracks;
  std::map<TrackKey, std::uint32_t> track_ids;
  std::uint64_t dropped = 0;  ///< events that a backend had to drop
};

/// The part that can be read while the tables change.
struct EraView {
  std::shared_ptr<const Era> era;  ///< owner of the names; do not read its other members
  Time begin = 0;
  std::uint32_t first_name = 0, first_track = 0;
  std::vector<const std::string*> names;
  std::vector<Track> tracks;
  std::uint64_t dropped = 0;
};

/// Use it on one thread at a time, except era().
class NameTables {
 public:
  /// An era lasts at least for `era`, and ends earlier when it has `most_names`. 0: it never ends.
  NameTables(Time era, std::size_t most_names, Time (*clock)());

  /// Returns the number of the current era. It changes when numbers must be requested again. It is
  /// never 0 and never that of other tables. A number stays valid for events that are added within
  /// two more eras.
  std::uint32_t era() const { return number_.load(std::memory_order_acquire); }

  bool knows(std::string_view name) const { return name.empty() || current().name_ids.count(name); }
  std::uint32_t name(std::string_view text);
  /// A new thread gets the system's name, unless an event of earlier eras has the thread.
  std::uint32_t track(const Track& wanted);
  void name_track(const Track& wanted, std::string_view name);
  void drop(std::uint64_t events) { current().dropped += events; }

  /// Ends the era if it is due. Destroying the result may take long, so do that elsewhere.
  [[nodiscard]] std::shared_ptr<const Era> age();
  /// Returns the oldest era first.
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
