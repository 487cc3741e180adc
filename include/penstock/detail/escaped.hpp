// SPDX-License-Identifier: Apache-2.0
#pragma once

// escaped(): any bytes as text that a terminal and a log can take. Names of files and of members of
// archives are bytes, and need not be UTF-8.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::detail {

/// Length in bytes of the printable character at the start of `text`, which is not empty; 0: there
/// is none, but a control character or no UTF-8 (RFC 3629).
inline std::size_t printable_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const std::uint8_t second = byte(1);
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  const bool control = first == 0xC2 && second < 0xA0;
  return too_long || no_character || control ? 0 : length;
}

/// `text`, with \xNN for each byte of what is not a printable character.
inline std::string escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = printable_character(text);
    if (length == 0) {
      const auto byte = static_cast<std::uint8_t>(text.front());
      out.append({'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]});
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace penstock::detail
