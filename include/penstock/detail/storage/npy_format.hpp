// SPDX-License-Identifier: Apache-2.0
#pragma once

// The header of a .npy file (NumPy's NEP 1): "\x93NUMPY", the version, the length of a text, and
// the text, which is a dictionary in the syntax of Python:
//
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }

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
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// What the text says. Functions that read it throw std::runtime_error.
struct NpyHeader {
  char kind = 0;  // b, i, u, f or c, as in NumPy
  std::size_t item_bytes = 0;
  std::vector<std::uint64_t> shape;

  std::string dtype() const {
    const std::string bits = std::to_string(8 * item_bytes);
    switch (kind) {
      case 'b':
        return "bool";
      case 'i':
        return "int" + bits;
      case 'u':
        return "uint" + bits;
      case 'f':
        return "float" + bits;
      default:
        return "complex" + bits;
    }
  }
};

/// Reads the text of a header.
class NpyText {
 public:
  explicit NpyText(std::string_view text) : text_(text) {}

  NpyHeader parse() {
    take_sign('{');
    while (!take_if('}')) {
      const std::string_view key = take_string();
      take_sign(':');
      if (key == "descr")
        take_descr();
      else if (key == "fortran_order")
        take_order();
      else if (key == "shape")
        take_shape();
      else
        fail("it has an unknown key " + quoted(key));
      if (take_if(',')) continue;
      take_sign('}');
      break;
    }
    skip_space();
    if (!text_.empty()) fail("there is more behind it");
    if (header_.kind == 0 || !has_order_ || !has_shape_)
      fail("descr, fortran_order or shape is missing");
    return header_;
  }

  /// Whether the text said Fortran order, which for an array of one axis means nothing.
  bool is_fortran() const { return is_fortran_; }

 private:
  [[noreturn]] static void fail(const std::string& why) {
    throw std::runtime_error("the header's text is wrong: " + why);
  }
  static std::string quoted(std::string_view text) {
    return '"' + escaped(text.substr(0, 40)) + '"';
  }

  void skip_space() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
  }
  bool take_if(char sign) {
    skip_space();
    if (!text_.starts_with(sign)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void take_sign(char sign) {
    if (!take_if(sign)) fail(std::string("'") + sign + "' is missing before " + quoted(text_));
  }

  std::string_view take_string() {
    const char quote = take_if('\'') ? '\'' : '"';
    if (quote == '"') take_sign('"');
    const std::size_t end = text_.find(quote);
    if (end == std::string_view::npos) fail("a string does not end");
    const std::string_view string = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return string;
  }

  void take_descr() {
    if (header_.kind != 0) fail("descr comes twice");
    skip_space();
    if (text_.starts_with('['))
      throw std::runtime_error("each element has several fields: " + quoted(text_) +
                               ". Save each of them as an array");
    const std::string_view descr = take_string();
    const std::string named = "the type of its elements is " + quoted(descr);
    std::string_view rest = descr;
    const bool has_order = rest.find_first_of("<>=|") == 0;
    const char order = has_order ? rest.front() : '=';
    if (has_order) rest.remove_prefix(1);
    const char kind = rest.empty() ? '?' : rest.front();
    if (!rest.empty()) rest.remove_prefix(1);
    if (kind == 'O')
      throw std::runtime_error(named + ", Python objects, which only Python can read");
    const std::optional<std::size_t> bytes = read_number<std::size_t>(rest);
    if (!bytes || !is_number(kind, *bytes))
      throw std::runtime_error(named + ", which is no number");
    if (order == '>' && *bytes > 1)
      throw std::runtime_error(
          named + ", big-endian: save it as array.astype(array.dtype.newbyteorder('<'))");
    header_.kind = kind;
    header_.item_bytes = *bytes;
  }
  static bool is_number(char kind, std::size_t bytes) {
    switch (kind) {
      case 'b':
        return bytes == 1;
      case 'i':
      case 'u':
        return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
      case 'f':
        return bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
      case 'c':
        return bytes == 8 || bytes == 16 || bytes == 32;
      default:
        return false;
    }
  }

  void take_order() {
    if (has_order_) fail("fortran_order comes twice");
    has_order_ = true;
    skip_space();
    if (take(text_, "False")) return;
    if (!take(text_, "True")) fail("fortran_order is neither True nor False");
    is_fortran_ = true;
  }

  void take_shape() {
    if (has_shape_) fail("shape comes twice");
    has_shape_ = true;
    take_sign('(');
    while (!take_if(')')) {
      skip_space();
      const std::optional<std::uint64_t> extent = take_number<std::uint64_t>(text_);
      if (!extent) fail("there is no extent before " + quoted(text_));
      take(text_, "L");  // Python 2 wrote some numbers so.
      header_.shape.push_back(*extent);
      if (take_if(',')) continue;
      take_sign(')');
      break;
    }
  }

  std::string_view text_;
  NpyHeader header_;
  bool has_order_ = false, has_shape_ = false, is_fortran_ = false;
};

/// Returns a * b; throws std::runtime_error where that does not fit.
inline std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    throw std::runtime_error("the shape has more than 2^64 elements");
  return result;
}

}  // namespace penstock::detail
