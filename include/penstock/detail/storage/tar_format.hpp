// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tar format, as far as samples need it: POSIX.1-1988 (ustar), POSIX.1-2001 (pax), and GNU
// tar's own long names and large numbers. Nothing here allocates.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/words.hpp>
#include <span>
#include <string_view>
#include <system_error>

namespace penstock::detail {

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

/// What an extended header of pax says about the member behind it, or a global one about all.
struct PaxHeader {
  std::optional<std::string_view> path;  // empty: the one in the member's own header
  std::optional<std::uint64_t> size;
  bool sparse = false;
  std::string_view sparse_name;  // empty: it is the path
};

/// Of the records "LENGTH KEY=VALUE\n". nullopt: they are none.
inline std::optional<PaxHeader> parse_pax(std::string_view records) {
  PaxHeader header;
  while (!records.empty() && records.front() != '\0') {
    std::size_t length = 0;
    const char* const last = records.data() + records.size();
    const auto [end, error] = std::from_chars(records.data(), last, length);
    const auto digits = static_cast<std::size_t>(end - records.data());
    if (error != std::errc() || length > records.size() || length < digits + 3 || *end != ' ' ||
        records[length - 1] != '\n')
      return std::nullopt;
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") header.path = value;
    if (key.starts_with("GNU.sparse.")) header.sparse = true;
    if (key == "GNU.sparse.name") header.sparse_name = value;
    if (key == "size") header.size = read_number<std::uint64_t>(value);
    if (key == "size" && !header.size) return std::nullopt;
    records.remove_prefix(length);
  }
  return header;
}

/// The two parts of a member's name, around the first dot behind its last slash.
struct TarName {
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
