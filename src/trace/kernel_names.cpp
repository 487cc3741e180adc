// SPDX-License-Identifier: Apache-2.0
#include "kernel_names.hpp"

#include <cxxabi.h>
#include <penstock/detail/measure/json.hpp>

#include <cstdlib>
#include <memory>

namespace penstock::trace::detail {

namespace {

/// Where the last parenthesis of the text, its parameters, opens; npos: it ends in none.
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

/// Replaces what stands in angle brackets below this depth.
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

}  // namespace

std::string demangled(const std::string& name) {
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return text ? text.get() : name;
}

std::string on_one_line(std::string text) {
  for (char& character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7F) character = ' ';
  }
  return text;
}

std::string readable(const std::string& name) {
  std::string text = demangled(name);
  if (text == name) return text;
  if (const std::size_t at = parameters_of(text); at != std::string::npos && at > 0)
    text.resize(at);
  if (text.starts_with("void ")) text.erase(0, 5);
  return text;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (const char byte : text) width += penstock::detail::continues_character(byte) ? 0 : 1;
  return width;
}

std::string shortened(std::string_view whole, std::size_t width) {
  const std::string name = on_one_line(std::string(whole));
  std::string text = name;
  for (int depth = 3; depth >= 0 && width_of(text) > width; --depth)
    text = without_arguments(name, depth);
  if (width_of(text) <= width) return text;
  while (width_of(text) + 2 > width && !text.empty()) {
    while (penstock::detail::continues_character(text.back())) text.pop_back();
    text.pop_back();
  }
  return text + "..";
}

}  // namespace penstock::trace::detail
