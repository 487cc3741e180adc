// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of penstock::trace look for in a timeline.

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>
#include <string_view>
#include <tuple>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace {

inline auto members(const Event& event) {
  return std::tie(event.begin, event.end, event.value, event.correlation, event.name, event.track,
                  event.domain, event.kind, event.direction, event.flags, event.color);
}
inline bool operator==(const Event& a, const Event& b) {
  return members(a) == members(b);
}

}  // namespace penstock::trace

namespace penstock::test {

/// The system's number of the calling thread, asked for each time: a forked child has another.
inline std::uint32_t thread_id() {
  return static_cast<std::uint32_t>(::syscall(SYS_gettid));
}

/// The events that are `wanted`, in their order.
template <class Wanted>
std::vector<trace::Event> events_where(const trace::Timeline& timeline, Wanted wanted) {
  std::vector<trace::Event> found;
  std::copy_if(timeline.events.begin(), timeline.events.end(), std::back_inserter(found), wanted);
  return found;
}

inline std::vector<trace::Event> events_of(const trace::Timeline& timeline, trace::Kind kind) {
  return events_where(timeline, [&](const trace::Event& event) { return event.kind == kind; });
}

inline std::vector<trace::Event> events_named(const trace::Timeline& timeline,
                                              std::string_view name) {
  return events_where(timeline,
                      [&](const trace::Event& event) { return timeline.name(event) == name; });
}

}  // namespace penstock::test
