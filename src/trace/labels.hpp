// SPDX-License-Identifier: Apache-2.0
#pragma once

// The labels that people read for kinds, directions and events without a name.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

constexpr std::string_view label(Kind kind) {
  switch (kind) {
    case Kind::kernel:
      return "kernel";
    case Kind::copy:
      return "copy";
    case Kind::fill:
      return "fill";
    case Kind::host_function:
      return "host function";
    case Kind::graph:
      return "graph";
    case Kind::call:
      return "call";
    case Kind::range:
      return "range";
  }
  return "event";
}

/// Returns an empty string for Direction::none.
constexpr std::string_view label(Direction direction) {
  switch (direction) {
    case Direction::none:
      return "";
    case Direction::host_to_device:
      return "host to device";
    case Direction::device_to_host:
      return "device to host";
    case Direction::device_to_device:
      return "device to device";
    case Direction::peer_to_peer:
      return "peer to peer";
    case Direction::host_to_host:
      return "host to host";
  }
  return "";
}

/// Returns "#59a14f", for example, without the alpha value.
inline std::string color_text(std::uint32_t color) {
  std::string text = "#";
  for (int shift = 20; shift >= 0; shift -= 4) text += "0123456789abcdef"[color >> shift & 0xf];
  return text;
}

/// Returns the event's name or, without one, "kernel" or "copy host to device", for example.
inline std::string label(const Timeline& timeline, const Event& event) {
  if (!timeline.name(event).empty()) return timeline.name(event);
  std::string text(label(event.kind));
  if (event.direction != Direction::none) text.append(" ").append(label(event.direction));
  return text;
}

}  // namespace penstock::trace::detail
