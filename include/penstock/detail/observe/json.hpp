// SPDX-License-Identifier: Apache-2.0
#pragma once

// JsonText: writes JSON. Names come from programs and may contain any bytes: bytes that are not
// UTF-8 become U+FFFD. "<" is escaped, so that the text can be put into the <script> of a page.
//
//   JsonText json;
//   json.begin_object().member("name", name).member("bytes", 4096).end_object();
//
// Commas are written automatically. The caller ends what it has begun.

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace penstock::detail {

/// Whether a byte of UTF-8 is not the first one of its character.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Number of bytes of the first UTF-8 character in `text`; 0 if it is invalid: a stray byte,
/// overlong, a surrogate, beyond U+10FFFF, or incomplete.
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

inline void append_escaped(std::string& out, char character) {
  constexpr const char* kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(character);
  if (character == '"' || character == '\\')
    (out += '\\') += character;
  else if (character == '\n' || character == '\t')
    (out += '\\') += character == '\n' ? 'n' : 't';
  else if (byte < 0x20 || byte == 0x7F || character == '<')
    ((out += "\\u00") += kDigits[byte >> 4]) += kDigits[byte & 15];
  else
    out += character;
}

/// Appends `text` in quotes, escaped.
inline void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length == 0)
      out += "\xEF\xBF\xBD";  // U+FFFD
    else if (length == 1)
      append_escaped(out, text[0]);
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

/// Appends the shortest text that is read as the same number, in any locale. Infinity and NaN,
/// which JSON does not have, become null.
template <class Number>
void append_number(std::string& out, Number number) {
  if constexpr (std::floating_point<Number>)
    if (!std::isfinite(number)) {
      out += "null";
      return;
    }
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

class JsonText {
 public:
  JsonText& begin_object() { return open('{'); }
  JsonText& end_object() { return close('}'); }
  JsonText& begin_array() { return open('['); }
  JsonText& end_array() { return close(']'); }

  JsonText& key(std::string_view name) {
    value(name);
    text_ += ':';
    first_ = true;
    return *this;
  }
  /// A text, a number, a bool, or nullptr.
  template <class Value>
  JsonText& value(const Value& content) {
    separate();
    if constexpr (std::same_as<Value, std::nullptr_t>)
      text_ += "null";
    else if constexpr (std::same_as<Value, bool>)
      text_ += content ? "true" : "false";
    else if constexpr (std::is_arithmetic_v<Value>)
      append_number(text_, content);
    else
      append_quoted(text_, content);
    return *this;
  }
  template <class Value>
  JsonText& member(std::string_view name, const Value& content) {
    return key(name).value(content);
  }

  const std::string& text() const { return text_; }

 private:
  JsonText& open(char bracket) {
    separate();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  JsonText& close(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  void separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }

  std::string text_;
  bool first_ = true;  ///< the next value needs no comma before it
};

}  // namespace penstock::detail
