// SPDX-License-Identifier: Apache-2.0
#pragma once

// TarFile: a tar that is open. Keeps what its global headers of pax say, and looks at the headers
// of certain members.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/storage/tar_format.hpp>
#include <penstock/detail/storage/tar_notes.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Any number of threads may use its const members.
struct TarFile : StoreFile {
  explicit TarFile(const File& open_file) : StoreFile("TarShards", open_file) {}

  /// Of a global header at byte `at`, which is behind those before. What it does not say stays as
  /// it was.
  void add_global(std::uint64_t at, const TarNotes& said) {
    if (!said.name && !said.size) return;
    TarGlobal next = globals_.empty() ? TarGlobal{} : globals_.back();
    next.from = at;
    if (said.name) next.path = *said.name;
    if (said.size) next.size = said.size;
    globals_.push_back(std::move(next));
  }
  /// What counts for a member whose header is at byte `at`. Does not allocate.
  const TarGlobal& global_at(std::uint64_t at) const {
    static const TarGlobal nothing;
    const auto after = std::ranges::upper_bound(globals_, at, {}, &TarGlobal::from);
    return after == globals_.begin() ? nothing : *(after - 1);
  }

  /// The header of a member or a note at byte `at`, in `room`. nullopt: there is none. Throws
  /// std::runtime_error.
  std::optional<TarHeader> header_at(std::uint64_t at, std::span<std::byte, kTarBlock> room) const {
    if (file.read(at, room) < room.size()) return std::nullopt;
    const TarHeader header(room);
    return header.has_right_checksum() ? std::optional(header) : std::nullopt;
  }

  /// Whether `block`, which is at byte `at` of the file, is the header of this member. Allocates
  /// only where its own name or size is another one, and no notes are in the 8 KiB before it.
  bool is_header_of(std::span<const std::byte> block, std::uint64_t at, const TarName& name,
                    std::uint64_t size) const {
    const TarHeader header(block);
    if (!header.has_right_checksum()) return false;
    const TarGlobal& global = global_at(at);
    if (TarNotes().are_of(header, global, name, size)) return true;
    std::array<std::byte, kFew> few;
    TarNotes notes = notes_before(at, few);
    if (notes.found) return notes.are_of(header, global, name, size);
    if (at <= few.size()) return false;
    std::vector<std::byte> many(kLongestTarNote + kFew);
    notes = notes_before(at, many);
    return notes.found && notes.are_of(header, global, name, size);
  }

  /// The name of the member of `size` bytes whose header is at byte `at`. `from`: where the member
  /// before it ends. nullopt: there is no such header.
  std::optional<std::string> name_at(std::uint64_t at, std::uint64_t size,
                                     std::uint64_t from) const {
    std::array<std::byte, kTarBlock> block;
    const std::optional<TarHeader> header = header_at(at, block);
    if (!header || is_tar_note(header->type())) return std::nullopt;
    const std::uint64_t room_before = from <= at ? at - from : kFew;
    std::vector<std::byte> before(
        static_cast<std::size_t>(std::min<std::uint64_t>(room_before, kLongestTarNote + kFew)));
    const TarNotes notes = notes_before(at, before);
    const TarGlobal& global = global_at(at);
    std::array<char, TarHeader::kLongestName> room;
    if (notes.damaged || notes.size_of(*header, global) != size) return std::nullopt;
    return std::string(notes.name_of(*header, global, room));
  }

 private:
  static constexpr std::size_t kFew = 16 * kTarBlock;

  /// Those in the `room.size()` bytes before byte `at`.
  TarNotes notes_before(std::uint64_t at, std::span<std::byte> room) const {
    const std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(at, room.size()));
    const std::span<std::byte> before = room.first(most);
    return TarNotes::at_end_of(file.read(at - most, before) < most ? before.first(0) : before);
  }

  std::vector<TarGlobal> globals_;  // in the order of their places
};

}  // namespace penstock::detail
