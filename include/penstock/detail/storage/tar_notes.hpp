// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarNotes: what the headers of pax and of GNU tar before a member's own header say about it, and
// whether that is a certain member's name and size.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/tar_format.hpp>
#include <span>
#include <string>
#include <string_view>

namespace penstock::detail {

/// A member, as an index or an earlier look at the headers has it.
struct ExpectedTarMember {
  std::string_view base, extension;
  std::uint64_t size;
};

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

/// Is this the member's name? wds2idx writes what `tar --list` prints, with other characters behind
/// a backslash, and others write the name as it is.
inline bool is_tar_name_of(std::string_view name, const ExpectedTarMember& member) {
  const auto is_name = [&](bool escaped) {
    std::string_view rest = name;
    return take_text(rest, member.base, escaped) && take_text(rest, ".", false) &&
           take_text(rest, member.extension, escaped) && rest.empty();
  };
  return is_name(false) || is_name(true);
}

/// What a global header of pax says about the members behind it.
struct TarGlobal {
  std::uint64_t from = 0;  // the byte of the tar behind which it counts
  std::string path;        // empty: nothing
  std::optional<std::uint64_t> size;
};

class TarNotes {
 public:
  TarNotes() = default;
  /// `before`: bytes of the tar up to the member's header. Must stay as long as this.
  explicit TarNotes(std::span<const std::byte> before) {
    while (const std::size_t bytes = last_note(before)) {
      take(before.last(bytes));
      before = before.first(before.size() - bytes);
      found_ = true;
    }
  }

  bool found() const { return found_; }
  bool damaged() const { return damaged_; }

  /// Do they and the header behind them say the member's name and size?
  bool are_of(const TarHeader& header, const TarGlobal& global,
              const ExpectedTarMember& member) const {
    if (damaged_ || size(header, global) != member.size) return false;
    std::array<char, TarHeader::kLongestName> room;
    return is_tar_name_of(name(header, global, room), member);
  }
  std::optional<std::uint64_t> size(const TarHeader& header, const TarGlobal& global) const {
    return size_ ? size_ : global.size ? global.size : header.size();
  }
  /// May lie in `room`.
  std::string_view name(const TarHeader& header, const TarGlobal& global,
                        std::span<char, TarHeader::kLongestName> room) const {
    const std::string_view said = name_ ? *name_ : global.path;
    return said.empty() ? header.whole_name(room) : said;
  }

 private:
  /// Of the note at the end of these bytes, with its header; 0: there is none.
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

  /// The notes come from the last one on: the first name and the first size are what counts.
  void take(std::span<const std::byte> note) {
    const TarHeader header(note.first(kTarBlock));
    const std::string_view text(reinterpret_cast<const char*>(note.data()) + kTarBlock,
                                static_cast<std::size_t>(header.size().value_or(0)));
    if (header.type() == 'L' && !name_) name_ = text.substr(0, text.find('\0'));
    if (header.type() == 'x') take_pax(text);
  }

  void take_pax(std::string_view text) {
    const std::optional<PaxHeader> pax = parse_pax(text);
    if (!pax) damaged_ = true;
    if (!pax) return;
    if (!name_) name_ = pax->path;
    if (!has_pax_) size_ = pax->size;
    has_pax_ = true;
  }

  bool found_ = false, has_pax_ = false, damaged_ = false;
  std::optional<std::string_view> name_;
  std::optional<std::uint64_t> size_;
};

}  // namespace penstock::detail
