// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarNotes: what the headers of pax and of GNU tar before a member's own header say about it, and
// whether that is a certain member's name and size.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/tar_format.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/version.hpp>
#include <span>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Takes the first character of a name. `escaped`: one that `tar --list` has written as a backslash
/// and a letter or three octal digits counts as what it stands for.
inline char take_character(std::string_view& text, bool escaped) {
  constexpr std::string_view kLetters = "abfnrtv\\", kMeanings = "\a\b\f\n\r\t\v\\";
  const char first = text.front();
  text.remove_prefix(1);
  if (!escaped || first != '\\' || text.empty()) return first;
  if (const std::size_t i = kLetters.find(text.front()); i != std::string_view::npos) {
    text.remove_prefix(1);
    return kMeanings[i];
  }
  const std::string_view digits = text.substr(0, 3);
  if (digits.size() < 3 || digits.find_first_not_of("01234567") != std::string_view::npos)
    return first;
  text.remove_prefix(3);
  return static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
}

/// Takes `text` from the start of `name`. False: `name` begins in another way.
inline bool take_text(std::string_view& name, std::string_view text, bool escaped) {
  while (!text.empty()) {
    if (name.empty() || take_character(text, escaped) != name.front()) return false;
    name.remove_prefix(1);
  }
  return true;
}

/// Whether the text is this name. wds2idx writes what `tar --list` prints, with other characters
/// behind a backslash, and others write the name as it is.
inline bool is_tar_name(std::string_view text, const TarName& name) {
  const auto is_name = [&](bool escaped) {
    std::string_view rest = text;
    return take_text(rest, name.base, escaped) && take_text(rest, ".", false) &&
           take_text(rest, name.extension, escaped) && rest.empty();
  };
  return is_name(false) || is_name(true);
}

/// What a global header of pax says about the members behind it.
struct TarGlobal {
  std::uint64_t from = 0;  // the byte of the tar behind which it counts
  std::string path;        // empty: nothing
  std::optional<std::uint64_t> size;
};

/// What notes say. The texts that they were taken from must stay as long as this.
struct TarNotes {
  /// Of the notes at the end of `before`, bytes of the tar up to the member's header.
  static TarNotes at_end_of(std::span<const std::byte> before) {
    std::size_t begin = before.size();
    while (const std::size_t bytes = last_note(before.first(begin))) begin -= bytes;
    TarNotes notes;
    for (auto rest = before.subspan(begin); !rest.empty() && !notes.damaged;) {
      const TarHeader header(rest.first(kTarBlock));
      const auto bytes = static_cast<std::size_t>(header.size().value_or(0));
      const auto* const text = reinterpret_cast<const char*>(rest.data()) + kTarBlock;
      notes.damaged = notes.take(header.type(), {text, bytes}) != nullptr;
      rest = rest.subspan(kTarBlock + static_cast<std::size_t>(in_tar_blocks(bytes)));
    }
    return notes;
  }

  /// Takes what a note of this type says about the next member; what comes later counts. Returns
  /// nullptr, or what is wrong with it.
  const char* take(char type, std::string_view text) {
    found = true;
    if (type == 'L') name = text.substr(0, text.find('\0'));
    return type == 'x' ? take_pax(text) : nullptr;
  }
  /// The same for a header of pax: records "LENGTH KEY=VALUE\n".
  const char* take_pax(std::string_view records) {
    constexpr const char* kDamaged = "a header of pax that is damaged";
    std::string_view sparse_name;
    size.reset();
    sparse = false;
    while (!records.empty() && records.front() != '\0') {
      std::string_view rest = records;
      const auto length = take_number<std::size_t>(rest);
      const std::size_t digits = records.size() - rest.size();
      if (!length || *length > records.size() || *length < digits + 3 || rest.front() != ' ' ||
          records[*length - 1] != '\n')
        return kDamaged;
      const std::string_view record = rest.substr(1, *length - digits - 2);
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) return kDamaged;
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") name = value;
      if (key.starts_with("GNU.sparse.")) sparse = true;
      if (key == "GNU.sparse.name") sparse_name = value;
      if (key == "size" && !(size = read_number<std::uint64_t>(value))) return kDamaged;
      records.remove_prefix(*length);
    }
    if (!sparse_name.empty()) name = sparse_name;
    const bool has_zero = name && name->find('\0') != std::string_view::npos;
    return has_zero ? "a name with a character 0" : nullptr;
  }

  /// Whether they and the header behind them say this name and size.
  bool are_of(const TarHeader& header, const TarGlobal& global, const TarName& expected,
              std::uint64_t bytes) const {
    if (damaged || sparse || size_of(header, global) != bytes) return false;
    std::array<char, TarHeader::kLongestName> room;
    return is_tar_name(name_of(header, global, room), expected);
  }
  std::optional<std::uint64_t> size_of(const TarHeader& header, const TarGlobal& global) const {
    return size ? size : global.size ? global.size : header.size();
  }
  /// May lie in `room`.
  std::string_view name_of(const TarHeader& header, const TarGlobal& global,
                           std::span<char, TarHeader::kLongestName> room) const {
    const std::string_view said = name ? *name : global.path;
    return said.empty() ? header.whole_name(room) : said;
  }

  bool found = false, damaged = false;
  bool sparse = false;                   // the tar has not all bytes of the member
  std::optional<std::string_view> name;  // empty: the one in the member's own header
  std::optional<std::uint64_t> size;

 private:
  /// Bytes of the note that ends these, with its header; 0: there is none.
  static std::size_t last_note(std::span<const std::byte> before) {
    for (std::size_t bytes = kTarBlock; bytes <= before.size(); bytes += kTarBlock) {
      const TarHeader header(before.last(bytes).first(kTarBlock));
      if (!is_tar_note(header.type())) continue;
      const std::optional<std::uint64_t> size = header.size();
      if (size && *size < bytes && in_tar_blocks(*size) + kTarBlock == bytes &&
          header.has_right_checksum())
        return bytes;
    }
    return 0;
  }
};

}  // namespace penstock::detail
