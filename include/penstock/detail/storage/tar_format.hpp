// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tar format, as far as samples need it: POSIX.1-1988 (ustar), POSIX.1-2001 (pax), and GNU
// tar's own long names and large numbers. Nothing here but text() allocates.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/version.hpp>
#include <span>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::detail {

inline constexpr std::uint64_t kTarBlock = 512;
/// Of a long name or a header of pax.
inline constexpr std::size_t kLongestTarNote = std::size_t{1} << 20;

/// A size in a tar file, with the zeros that fill its last block.
constexpr std::uint64_t in_tar_blocks(std::uint64_t bytes) {
  return (bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
}

/// A number in a header: octal digits, or big-endian bytes behind a byte 0x80. nullopt: neither.
inline std::optional<std::uint64_t> tar_number(std::string_view field) {
  std::uint64_t value = 0;
  if (!field.empty() && field.front() == '\x80') {
    for (const char byte : field.substr(1)) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | static_cast<std::uint8_t>(byte);
    }
    return value;
  }
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  field = field.substr(0, field.find_first_of(std::string_view(" \0", 2)));
  for (const char digit : field) {
    if (digit < '0' || digit > '7' || value >> 61 != 0) return std::nullopt;
    value = value << 3 | static_cast<std::uint64_t>(digit - '0');
  }
  return value;
}

/// A view of a block that may be a header.
class TarHeader {
 public:
  explicit TarHeader(std::span<const std::byte> block)
      : text_(reinterpret_cast<const char*>(block.data()), kTarBlock) {}

  bool is_zero() const { return text_.find_first_not_of('\0') == std::string_view::npos; }

  /// Old programs have added the bytes up as signed numbers.
  bool has_right_checksum() const {
    constexpr std::size_t kAt = 148, kBytes = 8;
    std::int64_t sum = 0, signed_sum = 0;
    for (std::size_t i = 0; i < kTarBlock; ++i) {
      const char byte = i >= kAt && i < kAt + kBytes ? ' ' : text_[i];
      sum += static_cast<unsigned char>(byte);
      signed_sum += static_cast<signed char>(byte);
    }
    const std::optional<std::uint64_t> stored = tar_number(text_.substr(kAt, kBytes));
    return stored && (static_cast<std::int64_t>(*stored) == sum ||
                      static_cast<std::int64_t>(*stored) == signed_sum);
  }

  std::optional<std::uint64_t> size() const { return tar_number(text_.substr(124, 12)); }
  char type() const { return text_[156]; }
  std::string_view name() const { return string_at(0, 100); }
  /// What comes before the name, with a slash between them; mostly empty.
  std::string_view prefix() const {
    return text_.substr(257, 6) == std::string_view("ustar\0", 6) ? string_at(345, 155)
                                                                  : std::string_view();
  }
  /// Both, in `room`.
  static constexpr std::size_t kLongestName = 155 + 1 + 100;
  std::string_view whole_name(std::span<char, kLongestName> room) const {
    char* end = std::copy(prefix().begin(), prefix().end(), room.data());
    if (end != room.data()) *end++ = '/';
    end = std::copy(name().begin(), name().end(), end);
    return {room.data(), static_cast<std::size_t>(end - room.data())};
  }

 private:
  std::string_view string_at(std::size_t at, std::size_t bytes) const {
    const std::string_view field = text_.substr(at, bytes);
    return field.substr(0, field.find('\0'));
  }

  std::string_view text_;
};

/// Headers that say something about other members, or about nothing that is of use: long names of
/// GNU tar, and what pax says about the next member or about all.
constexpr bool is_tar_note(char type) {
  return type == 'L' || type == 'K' || type == 'x' || type == 'g';
}

/// The two parts of a member's name, around the first dot behind its last slash.
struct TarName {
  std::string text() const { return std::string(base).append(".").append(extension); }

  std::string_view base, extension;
};

/// nullopt: the member belongs to no sample.
inline std::optional<TarName> split_tar_name(std::string_view name) {
  if (is_left_by_tools(name)) return std::nullopt;
  const std::size_t slash = name.rfind('/');
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', begin);
  if (dot == std::string_view::npos || dot == begin || dot + 1 == name.size()) return std::nullopt;
  return TarName{name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace penstock::detail
