// SPDX-License-Identifier: Apache-2.0
#pragma once

// Encodes the events of a timeline for the page: column by column, as numbers of 7 bits per byte
// (LEB128) in base64, which gives 8 to 10 bytes per event. page/js/data.js decodes them. They are
// not compressed, because a page would need a library or a very new browser to decompress them.

#include <cstdint>
#include <penstock/version.hpp>
#include <string>
#include <vector>

#include "../activity.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// The common part of many events, stored once. Names are indices as in Timeline.
struct EventClass {
  Kind kind = Kind::call;
  Direction direction = Direction::none;
  std::uint16_t flags = 0;
  std::uint32_t name = 0, track = 0, domain = 0;
  std::uint32_t stage = 0;  ///< index of a name (stages.hpp)
  bool works = false;       ///< whether it occupies a device (Activity)
};

struct EventColumns {
  std::vector<EventClass> classes;  ///< the most frequent first
  std::string classes_of;           ///< for each event, the index into `classes`
  std::string begins;     ///< nanoseconds since the previous event; the first: since `begin`
  std::string durations;  ///< nanoseconds
  std::string values;
  /// 0: none; else 1 + the zigzag difference to the previous correlation of the same kind (calls or
  /// device events).
  std::string correlations;
};

/// `stages` has an entry for each event.
EventColumns columns(const Activity& activity, const std::vector<std::uint32_t>& stages);

std::string base64(const std::string& bytes);

}  // namespace penstock::trace::detail
