// SPDX-License-Identifier: Apache-2.0
#include "kernel_names.hpp"

#include <cxxabi.h>
#include <penstock/detail/escaped.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "demangling.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Returns where the parameter list at the end of the text opens, or npos if the text ends in none.
std::size_t parameters_of(std::string_view text) {
  if (text.ends_with(" const")) text.remove_suffix(6);
  if (!text.ends_with(')')) return std::string_view::npos;
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

/// Replaces the contents of angle brackets below this depth.
std::string without_arguments(std::string_view name, int depth_kept) {
  std::string text;
  int depth = 0;
  for (const char character : name) {
    if (character == '>' && depth > 0) --depth;
    if (depth <= depth_kept) text += character;
    if (character == '<' && ++depth == depth_kept + 1) text += "..";
  }
  return text;
}

std::string without_parameters(std::string text) {
  if (const std::size_t at = parameters_of(text); at != std::string::npos && at > 0)
    text.resize(at);
  if (text.starts_with("void ")) text.erase(0, 5);
  return text;
}

/// Whether the byte is the rest of a template parameter in the output of demangled_within_bounds.
bool is_unresolved(char byte) {
  return static_cast<unsigned char>(byte) < 0x20;
}

/// Whether one UTF-8 character is a control character. Terminals obey those from U+0080 to U+009F
/// too.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string demangled(const std::string& name) {
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return text ? text.get() : name;
}

std::string on_one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = penstock::detail::character_length(text);
    if (length == 0)
      line += "\xEF\xBF\xBD";  // U+FFFD
    else if (is_control(text.substr(0, length)))
      line += ' ';
    else
      line += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return line;
}

std::string readable(const std::string& name) {
  std::string text = demangled(name);
  return text == name ? text : without_parameters(without_abi(std::move(text)));
}

std::string readable_within_bounds(const std::string& name) {
  std::optional<std::string> text = demangled_within_bounds(name);
  if (!text) return name;
  std::string function = without_parameters(without_abi(std::move(*text)));
  return std::any_of(function.begin(), function.end(), is_unresolved) ? name : function;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (const char byte : text) width += penstock::detail::continues_character(byte) ? 0U : 1U;
  return width;
}

std::string shortened(std::string_view whole, std::size_t width) {
  const std::string name = on_one_line(whole);
  std::string text = name;
  for (int depth = 3; depth >= 0 && width_of(text) > width; --depth)
    text = without_arguments(name, depth);
  return limited(text, width);
}

std::string limited(std::string_view text, std::size_t width) {
  std::size_t kept = 0, characters = 0;  // size in bytes of the first width - 2 characters
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool continues = penstock::detail::continues_character(text[at]);
    if (!continues && characters++ + 2 == width) kept = at;
    // In a text that is not UTF-8, a character may have any number of bytes.
    if (characters > width || at >= 4 * width) return std::string(text.substr(0, kept)) + "..";
  }
  return std::string(text);
}

}  // namespace penstock::trace::detail
