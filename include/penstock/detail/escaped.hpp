// SPDX-License-Identifier: Apache-2.0
#pragma once

// escaped(): converts any bytes to text for a terminal or a log. The names of files and of members
// of archives are bytes that need not be UTF-8.

#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Whether a byte of UTF-8 is not the first one of its character.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Returns the number of bytes of the first UTF-8 character in `text`. Returns 0 if it is invalid:
/// a stray byte, overlong, a surrogate, beyond U+10FFFF, or incomplete (RFC 3629).
inline std::size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!continues_character(text[i])) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second >= 0xA0;
  return overlong || surrogate || (lead == 0xF4 && second >= 0x90) ? 0 : length;
}

/// Like character_length, but returns 0 also for a control character.
inline std::size_t printable_character(std::string_view text) {
  const std::size_t length = character_length(text);
  const auto byte = static_cast<std::uint8_t>(text[length == 2 ? 1 : 0]);
  const bool control = length == 2 ? text[0] == '\xC2' && byte < 0xA0 : byte < 0x20 || byte == 0x7F;
  return control ? 0 : length;
}

/// Returns `text` with \xNN in place of each byte that is not part of a printable character.
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
