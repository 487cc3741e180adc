// SPDX-License-Identifier: Apache-2.0
#pragma once

// JsonText: writes JSON. Names come from programs and may contain any bytes. Bytes that are not
// UTF-8 become U+FFFD. "<" is escaped, so that the text can stand in a <script> element.
//
//   JsonText json;
//   json.begin_object().member("name", name).member("bytes", 4096).end_object();
//
// Commas are written automatically. The caller must end each object and array that it begins.

#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <penstock/detail/escaped.hpp>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI::detail {

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

/// Appends the shortest text that represents the number exactly, independent of the locale.
/// Infinity and NaN, which JSON does not have, become null.
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

/// Appends the time in seconds.
inline void append_number(std::string& out, std::chrono::nanoseconds time) {
  append_number(out, std::chrono::duration<double>(time).count());
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
  /// Appends a value: a text, a number, a bool, a time (in seconds), or nullptr.
  template <class Value>
  JsonText& value(const Value& content) {
    separate();
    if constexpr (std::same_as<Value, std::nullptr_t>)
      text_ += "null";
    else if constexpr (std::same_as<Value, bool>)
      text_ += content ? "true" : "false";
    else if constexpr (std::is_arithmetic_v<Value> || std::same_as<Value, std::chrono::nanoseconds>)
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
