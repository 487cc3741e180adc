// SPDX-License-Identifier: Apache-2.0
#include "name_tables.hpp"

#include <unistd.h>

#include <fstream>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Returns a number for an era. No table reuses a number.
std::uint32_t next_era() {
  static std::atomic<std::uint32_t> number{0};
  return ++number;
}

/// Returns the number after the given ones. Numbers are reused only after a long time, when their
/// earlier meaning is gone.
std::uint32_t behind(std::uint32_t first, std::size_t count, std::uint32_t from) {
  constexpr std::uint32_t kMost = std::uint32_t{1} << 31;
  const std::uint64_t next = std::uint64_t{first} + count;
  return next < kMost ? static_cast<std::uint32_t>(next) : from;
}

/// Returns an empty string for a thread that has ended.
std::string command_of(std::uint64_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

/// Returns the system's name of a thread that no tool has named. The result is empty if the program
/// did not name it either, because the name is then inherited.
std::string system_name(std::uint64_t thread) {
  const auto main = static_cast<std::uint64_t>(::getpid());
  if (thread == main) return "main thread";
  std::string name = command_of(thread);
  return name == command_of(main) ? std::string() : name;
}

}  // namespace

NameTables::NameTables(Time era, std::size_t most_names, Time (*clock)())
    : length_(era), most_names_(most_names), clock_(clock), number_(next_era()) {
  eras_.push_back(std::make_shared<Era>());
  if (length_ != 0) current().begin = clock_();
}

std::uint32_t NameTables::name(std::string_view text) {
  if (text.empty()) return 0;
  Era& era = current();
  const auto found = era.name_ids.find(text);
  if (found != era.name_ids.end()) return found->second;
  const auto id = era.first_name + static_cast<std::uint32_t>(era.names.size());
  era.name_ids.emplace(era.names.emplace_back(text), id);
  return id;
}

std::uint32_t NameTables::track(const Track& wanted) {
  Era& era = current();
  const TrackKey key = key_of(wanted);
  const auto [entry, is_new] = era.track_ids.try_emplace(
      key, era.first_track + static_cast<std::uint32_t>(era.tracks.size()));
  if (is_new) {
    std::string& name = era.tracks.emplace_back(wanted).name;
    name = name_before(key);
    if (name.empty() && wanted.kind == Track::Kind::thread) name = system_name(wanted.id);
  }
  return entry->second;
}

std::string NameTables::name_before(const TrackKey& key) const {
  for (auto era = std::next(eras_.rbegin()); era != eras_.rend(); ++era)
    if (const auto found = (*era)->track_ids.find(key); found != (*era)->track_ids.end())
      return (*era)->tracks[found->second - (*era)->first_track].name;
  return {};
}

void NameTables::name_track(const Track& wanted, std::string_view name) {
  Era& era = current();
  std::string& its = era.tracks[track(wanted) - era.first_track].name;
  its = name.empty() && wanted.kind == Track::Kind::thread ? system_name(wanted.id)
                                                           : std::string(name);
}

std::shared_ptr<const Era> NameTables::age() {
  if (length_ == 0) return {};
  const Era& ended = current();
  const Time now = clock_();
  if (now - ended.begin < length_ && ended.names.size() < most_names_) return {};
  const auto era = std::make_shared<Era>();
  era->begin = now;
  era->first_name = behind(ended.first_name, ended.names.size(), 1);
  era->first_track = behind(ended.first_track, ended.tracks.size(), 0);
  eras_.push_back(era);
  number_.store(next_era(), std::memory_order_release);
  if (eras_.size() <= kEras) return {};
  std::shared_ptr<const Era> gone = std::move(eras_.front());
  eras_.pop_front();
  return gone;
}

std::vector<EraView> NameTables::views() const {
  std::vector<EraView> all;
  for (const std::shared_ptr<Era>& era : eras_) {
    EraView& view = all.emplace_back();
    view.era = era;
    view.begin = era->begin;
    view.first_name = era->first_name;
    view.first_track = era->first_track;
    view.dropped = era->dropped;
    view.names.reserve(era->names.size());
    for (const std::string& name : era->names) view.names.push_back(&name);
    view.tracks.assign(era->tracks.begin(), era->tracks.end());
  }
  return all;
}

std::uint64_t NameTables::take_dropped() {
  std::uint64_t sum = 0;
  for (const std::shared_ptr<Era>& era : eras_) sum += std::exchange(era->dropped, 0);
  return sum;
}

}  // namespace penstock::trace::detail
