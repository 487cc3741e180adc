// SPDX-License-Identifier: Apache-2.0
#pragma once

// JsonReader: reads a text in JSON (RFC 8259) from its beginning to its end, without a tree of it:
//
//   JsonReader json(text);
//   json.object([&](const std::string& key) {
//     if (key == "version") version = json.number();
//     else json.skip();
//   });
//   json.end();

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/escaped.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::detail {

/// All members throw std::runtime_error, which says what is wrong, and at which byte.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text), rest_(text) {}

  /// Calls `use(key)` for each member of an object; it has to read the value.
  template <class Use>
  void object(const Use& use) {
    const Deeper deeper(*this);
    take_sign('{');
    if (take_if('}')) return;
    do {
      skip_space();
      const std::string key = string();
      take_sign(':');
      use(key);
    } while (take_if(','));
    take_sign('}');
  }
  /// Calls `use()` for each element of an array; it has to read the element.
  template <class Use>
  void array(const Use& use) {
    const Deeper deeper(*this);
    take_sign('[');
    if (take_if(']')) return;
    do use();
    while (take_if(','));
    take_sign(']');
  }
  /// A string, in UTF-8.
  std::string string() {
    take_sign('"');
    std::string value;
    while (true) {
      if (rest_.empty()) fail("a string does not end");
      const char sign = rest_.front();
      if (sign == '"') break;
      if (sign == '\\') {
        rest_.remove_prefix(1);
        take_escape(value);
        continue;
      }
      const std::size_t length =
          static_cast<unsigned char>(sign) < 0x20 ? 0 : character_length(rest_);
      if (length == 0) fail("a string has a byte that is not UTF-8, or a control character");
      value += rest_.substr(0, length);
      rest_.remove_prefix(length);
    }
    rest_.remove_prefix(1);
    return value;
  }
  /// A whole number that is not negative.
  std::uint64_t number() {
    skip_space();
    const std::string_view digits = take_literal();
    const std::optional<std::uint64_t> number = read_number<std::uint64_t>(digits);
    if (!number || (digits.size() > 1 && digits.front() == '0'))
      fail("\"" + escaped(digits.substr(0, 40)) + "\" is no whole number");
    return *number;
  }
  /// Whether the value is null, which it then takes.
  bool null() {
    skip_space();
    return take(rest_, "null");
  }
  /// Takes any value.
  void skip() {
    skip_space();
    const char sign = rest_.empty() ? '\0' : rest_.front();
    if (sign == '{') return object([this](const std::string&) { skip(); });
    if (sign == '[') return array([this] { skip(); });
    if (sign == '"') return static_cast<void>(string());
    const std::string_view literal = take_literal();
    if (literal != "null" && literal != "true" && literal != "false" && !is_number(literal))
      fail("\"" + escaped(literal.substr(0, 40)) + "\" is no value");
  }
  /// Throws unless the text ends here.
  void end() {
    skip_space();
    if (!rest_.empty()) fail("there is more behind its end");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("byte " + std::to_string(text_.size() - rest_.size()) + ": " + why);
  }

 private:
  /// Values in values, which take memory of the stack, are limited.
  struct Deeper {
    explicit Deeper(JsonReader& reader) : reader_(reader) {
      if (++reader_.depth_ > 64) reader_.fail("more than 64 values are in each other");
    }
    ~Deeper() { --reader_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    JsonReader& reader_;
  };

  void skip_space() {
    while (!rest_.empty() &&
           std::string_view(" \t\r\n").find(rest_.front()) != std::string_view::npos)
      rest_.remove_prefix(1);
  }
  bool take_if(char sign) {
    skip_space();
    if (!rest_.starts_with(sign)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void take_sign(char sign) {
    if (!take_if(sign)) fail(std::string("'") + sign + "' is missing");
  }
  /// A number or a name.
  std::string_view take_literal() {
    const std::string_view literal = rest_.substr(0, rest_.find_first_of(" \t\r\n,:]}[{\""));
    rest_.remove_prefix(literal.size());
    return literal;
  }
  static bool take_digits(std::string_view& text) {
    const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count > 0;
  }
  static bool is_number(std::string_view text) {
    take(text, "-");
    if (!take(text, "0") && !take_digits(text)) return false;
    if (take(text, ".") && !take_digits(text)) return false;
    if (take(text, "e") || take(text, "E")) {
      if (!take(text, "+")) take(text, "-");
      if (!take_digits(text)) return false;
    }
    return text.empty();
  }

  void take_escape(std::string& value) {
    constexpr std::string_view kSigns = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    if (rest_.empty()) fail("a string does not end");
    const char sign = rest_.front();
    rest_.remove_prefix(1);
    if (const std::size_t which = kSigns.find(sign); which != std::string_view::npos) {
      value += kMeant[which];
      return;
    }
    if (sign != 'u') fail("a string has an unknown escape");
    std::uint32_t code = take_unit();
    if (code >= 0xd800 && code < 0xdc00) {
      if (!take(rest_, "\\u")) fail("a string has half a character");
      const std::uint32_t low = take_unit();
      if (low < 0xdc00 || low > 0xdfff) fail("a string has half a character");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code <= 0xdfff) {
      fail("a string has half a character");
    }
    append(value, code);
  }
  std::uint32_t take_unit() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const std::size_t digit =
          rest_.empty() ? std::string_view::npos : kDigits.find(lower_case(rest_.substr(0, 1)));
      if (digit == std::string_view::npos) fail("a string has an escape of fewer than 4 digits");
      code = code * 16 + static_cast<std::uint32_t>(digit);
      rest_.remove_prefix(1);
    }
    return code;
  }
  static void append(std::string& value, std::uint32_t code) {
    const auto add = [&](std::uint32_t byte) { value += static_cast<char>(byte); };
    const auto add_rest = [&](std::uint32_t shift) { add(0x80 | ((code >> shift) & 0x3f)); };
    if (code < 0x80) return add(code);
    if (code < 0x800) {
      add(0xc0 | code >> 6);
    } else if (code < 0x10000) {
      add(0xe0 | code >> 12);
      add_rest(6);
    } else {
      add(0xf0 | code >> 18);
      add_rest(12);
      add_rest(6);
    }
    add_rest(0);
  }

  std::string_view text_, rest_;
  int depth_ = 0;
};

}  // namespace penstock::detail
