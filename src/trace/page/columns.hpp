// SPDX-License-Identifier: Apache-2.0
#pragma once

// The events of a timeline as the page carries them: column by column, as numbers of 7 bits a byte
// (LEB128), which makes 8 to 10 bytes of an event, in base64. page/js/data.js reads them. No
// compression: a page would need a library to undo it, or a browser that is new enough.

#include <cstdint>
#include <string>
#include <vector>

#include "../activity.hpp"

namespace penstock::trace::detail {

/// What many events have in common, kept once. Names as in Timeline.
struct EventClass {
  Kind kind = Kind::call;
  Direction direction = Direction::none;
  std::uint16_t flags = 0;
  std::uint32_t name = 0, track = 0, domain = 0;
  std::uint32_t stage = 0;  ///< a name (stages.hpp)
  bool works = false;       ///< occupies a device (Activity)
};

struct EventColumns {
  std::vector<EventClass> classes;  ///< the most frequent first
  std::string classes_of;           ///< each event's, into `classes`
  std::string begins;               ///< nanoseconds since the event before; at first since `begin`
  std::string durations;            ///< nanoseconds
  std::string values;
  /// 0: none; else 1 + the difference to the last one before, of calls or of device events,
  /// zigzag.
  std::string correlations;
};

/// `stages`: of each event.
EventColumns columns(const Activity& activity, const std::vector<std::uint32_t>& stages);

std::string base64(const std::string& bytes);

}  // namespace penstock::trace::detail
