// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parses words and numbers in texts from files, the system or the environment.

#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <system_error>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Returns `text` with ASCII letters in lower case, independent of the locale.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return lower;
}

/// Returns `text` without the white space around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// Removes the first word of `text` and the space after it. Returns the word; empty at the end.
inline std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size() == text.size() ? word.size() : word.size() + 1);
  return word;
}

/// Removes `prefix` from the start of `text`. Returns false if `text` does not begin with it.
inline bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Removes the decimal number at the start of `text` and returns it. Returns nullopt if there is
/// none of this type.
template <std::integral Integer>
std::optional<Integer> take_number(std::string_view& text) {
  Integer number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

/// Parses all of `text` as a decimal number. Returns nullopt if it is none of this type.
template <std::integral Integer>
std::optional<Integer> read_number(std::string_view text) {
  const std::optional<Integer> number = take_number<Integer>(text);
  return text.empty() ? number : std::nullopt;
}

}  // namespace penstock::detail
