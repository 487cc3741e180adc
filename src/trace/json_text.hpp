// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON as text, for the views. Names come from programs: they may hold any bytes, so what is no
// UTF-8 becomes U+FFFD, and "<" is escaped: the text may stand within a page's <script>.
//
//   JsonText json;
//   json.begin_object().member("name", name).member("bytes", 4096).end_object();
//
// Commas are set by themselves; that what is begun is ended is the caller's part.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::trace::detail {

/// A byte of UTF-8 that is not the first of its character.
constexpr bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Appends `text` in quotes, escaped.
void append_quoted(std::string& out, std::string_view text);

/// Appends a number. Infinite ones and NaN, which JSON has not, become null.
void append_number(std::string& out, double number);
void append_number(std::string& out, std::int64_t number);
void append_number(std::string& out, std::uint64_t number);

class JsonText {
 public:
  JsonText& begin_object() { return open('{'); }
  JsonText& end_object() { return close('}'); }
  JsonText& begin_array() { return open('['); }
  JsonText& end_array() { return close(']'); }

  JsonText& key(std::string_view name);

  JsonText& value(std::string_view text);
  JsonText& value(const char* text) { return value(std::string_view(text)); }
  JsonText& value(bool yes);
  JsonText& value(double number);
  template <std::integral Integer>
  JsonText& value(Integer number) {
    if constexpr (std::signed_integral<Integer>)
      return integer(static_cast<std::int64_t>(number));
    else
      return natural(static_cast<std::uint64_t>(number));
  }

  template <class Value>
  JsonText& member(std::string_view name, const Value& content) {
    return key(name).value(content);
  }

  const std::string& text() const { return text_; }

 private:
  JsonText& open(char bracket);
  JsonText& close(char bracket);
  JsonText& integer(std::int64_t number);
  JsonText& natural(std::uint64_t number);
  void separate();

  std::string text_;
  bool first_ = true;  ///< nothing stands before the next value that a comma must part it from
};

}  // namespace penstock::trace::detail
