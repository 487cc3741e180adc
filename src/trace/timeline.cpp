// SPDX-License-Identifier: Apache-2.0
#include <penstock/trace/timeline.hpp>

#include <algorithm>

namespace penstock::inline PENSTOCK_ABI::trace {

void arrange(Timeline& timeline) {
  std::sort(timeline.events.begin(), timeline.events.end(), [](const Event& a, const Event& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::stable_sort(timeline.memory.begin(), timeline.memory.end(),
                   [](const MemoryLevel& a, const MemoryLevel& b) { return a.begin < b.begin; });
  std::stable_sort(timeline.engine_use.begin(), timeline.engine_use.end(),
                   [](const EngineUse& a, const EngineUse& b) { return a.time < b.time; });
  for (const EngineUse& use : timeline.engine_use) {
    timeline.begin = std::min(timeline.begin, use.time);
    timeline.end = std::max(timeline.end, use.time);
  }
  for (const MemoryLevel& level : timeline.memory) {
    timeline.begin = std::min(timeline.begin, level.begin);
    timeline.end = std::max(timeline.end, level.begin);
  }
  for (const Event& event : timeline.events) {
    timeline.begin = std::min(timeline.begin, event.begin);
    timeline.end = std::max(timeline.end, event.end);
  }
}

std::string title(const Track& track) {
  std::string text = track.rank < 0 ? "" : "rank " + std::to_string(track.rank) + ": ";
  if (!track.name.empty()) return text + track.name;
  if (track.kind == Track::Kind::thread) return text + "thread " + std::to_string(track.id);
  if (track.kind == Track::Kind::lane) return text + "requests " + std::to_string(track.id + 1);
  return text + "device " + std::to_string(track.device) + ", stream " + std::to_string(track.id);
}

}  // namespace penstock::trace
