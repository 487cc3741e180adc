// SPDX-License-Identifier: Apache-2.0
#include "json_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

namespace penstock::trace::detail {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Bytes of the UTF-8 character at the front of `text`; 0 if there is none: stray, overlong,
/// surrogate, beyond U+10FFFF, or cut off.
std::size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!continues_character(text[i])) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  if (lead == 0xE0 && second < 0xA0) return 0;   // overlong
  if (lead == 0xED && second >= 0xA0) return 0;  // surrogate
  if (lead == 0xF0 && second < 0x90) return 0;   // overlong
  if (lead == 0xF4 && second >= 0x90) return 0;  // beyond U+10FFFF
  return length;
}

void append_ascii(std::string& out, char character) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  switch (character) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(character);
  if (byte >= 0x20 && byte != 0x7F && character != '<') {
    out += character;
    return;
  }
  out += "\\u00";
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

template <class Number>
void append_characters(std::string& out, Number number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  out.append(text.data(), end);
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0)
      out += kReplacement;
    else if (length == 1)
      append_ascii(out, text[0]);
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

void append_number(std::string& out, double number) {
  if (std::isfinite(number))
    append_characters(out, number);
  else
    out += "null";
}

void append_number(std::string& out, std::int64_t number) {
  append_characters(out, number);
}

void append_number(std::string& out, std::uint64_t number) {
  append_characters(out, number);
}

void JsonText::separate() {
  if (!first_) text_ += ',';
  first_ = false;
}

JsonText& JsonText::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonText& JsonText::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonText& JsonText::key(std::string_view name) {
  value(name);
  text_ += ':';
  first_ = true;
  return *this;
}

JsonText& JsonText::value(std::string_view text) {
  separate();
  append_quoted(text_, text);
  return *this;
}

JsonText& JsonText::value(bool yes) {
  separate();
  text_ += yes ? "true" : "false";
  return *this;
}

JsonText& JsonText::value(double number) {
  separate();
  append_number(text_, number);
  return *this;
}

JsonText& JsonText::integer(std::int64_t number) {
  separate();
  append_number(text_, number);
  return *this;
}

JsonText& JsonText::natural(std::uint64_t number) {
  separate();
  append_number(text_, number);
  return *this;
}

}  // namespace penstock::trace::detail
