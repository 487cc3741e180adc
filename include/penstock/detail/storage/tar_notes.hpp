// SPDX-License-Identifier: Apache-2.0
#pragma once

// is_tar_header_of(): whether a block of a tar is the header of a certain member, also where
// headers of pax or of GNU tar before it say the member's name or size.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/read_only_file.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <span>
#include <string_view>
#include <vector>

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

/// What the headers of pax and of GNU tar before a member's own header say about it.
class TarNotes {
 public:
  /// `before`: bytes of the tar up to the member's header. Must stay as long as this.
  explicit TarNotes(std::span<const std::byte> before) {
    while (const std::size_t bytes = last_note(before)) {
      take(before.last(bytes));
      before = before.first(before.size() - bytes);
      found_ = true;
    }
  }

  bool found() const { return found_; }

  /// Do the notes and the header behind them say the member's name and size?
  bool are_of(const TarHeader& header, const ExpectedTarMember& member) const {
    if (damaged_) return false;
    if (size_ ? *size_ != member.size : header.size() != member.size) return false;
    if (!name_.empty()) return is_tar_name_of(name_, member);
    std::array<char, TarHeader::kLongestName> room;
    return is_tar_name_of(header.whole_name(room), member);
  }

 private:
  /// Of the note at the end of these bytes, with its header; 0: there is none.
  static std::size_t last_note(std::span<const std::byte> before) {
    for (std::size_t bytes = kTarBlock; bytes <= before.size(); bytes += kTarBlock) {
      const TarHeader header(before.last(bytes).first(kTarBlock));
      if (std::string_view("xgLK").find(header.type()) == std::string_view::npos) continue;
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
    if (header.type() == 'L' && name_.empty()) name_ = text.substr(0, text.find('\0'));
    if (header.type() == 'x') take_pax(text);
  }

  void take_pax(std::string_view text) {
    const std::optional<PaxHeader> pax = parse_pax(text);
    if (!pax) damaged_ = true;
    if (!pax) return;
    if (name_.empty()) name_ = pax->path;
    if (!has_pax_) size_ = pax->size;
    has_pax_ = true;
  }

  bool found_ = false, has_pax_ = false, damaged_ = false;
  std::string_view name_;
  std::optional<std::uint64_t> size_;
};

/// nullopt: there are no notes in the `room.size()` bytes before the header, which is at byte `at`.
inline std::optional<bool> notes_say(const TarHeader& header, const ReadOnlyFile& file,
                                     std::uint64_t at, const ExpectedTarMember& member,
                                     std::span<std::byte> room) {
  const std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(at, room.size()));
  const std::span<std::byte> before = room.first(most);
  if (file.read(at - most, before) < most) return std::nullopt;
  const TarNotes notes(before);
  if (!notes.found()) return std::nullopt;
  return notes.are_of(header, member);
}

/// Whether `block`, which is at byte `at` of the file, is the header of this member. Allocates only
/// where its own name or size is another one, and no notes are in the 8 KiB before it.
inline bool is_tar_header_of(std::span<const std::byte> block, const ReadOnlyFile& file,
                             std::uint64_t at, const ExpectedTarMember& member) {
  const TarHeader header(block);
  if (!header.has_right_checksum()) return false;
  if (TarNotes(std::span<const std::byte>()).are_of(header, member)) return true;
  std::array<std::byte, 16 * kTarBlock> few;
  if (const auto answer = notes_say(header, file, at, member, few)) return *answer;
  if (at <= few.size()) return false;
  std::vector<std::byte> many(kLongestTarNote + 16 * kTarBlock);
  return notes_say(header, file, at, member, many).value_or(false);
}

}  // namespace penstock::detail
