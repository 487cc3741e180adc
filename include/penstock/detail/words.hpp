// SPDX-License-Identifier: Apache-2.0
#pragma once

// Words and numbers of texts that programs write: of files, of the system, of the environment.

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace penstock::detail {

/// Removes the first word of `text` and the space after it, and returns the word; empty at the end.
inline std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size() == text.size() ? word.size() : word.size() + 1);
  return word;
}

/// The decimal number that all of `text` is. nullopt: it is none of this type.
template <std::integral Integer>
std::optional<Integer> read_number(std::string_view text) {
  Integer number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace penstock::detail
