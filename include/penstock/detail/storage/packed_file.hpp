// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <penstock/detail/read_only_file.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/packed_format.hpp>
#include <penstock/detail/storage/scratch.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/usable_memory.hpp>
#include <penstock/packed_file.hpp>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock {

namespace detail {

/// An open pack and its index.
struct Pack {
  explicit Pack(const std::filesystem::path& name) : path(name), file(open()), bytes(size()) {
    read_header();
    read_note();
    read_index();
    check_entries();
    check_names();
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw StoreError("PackedFile", path, why);
  }
  [[noreturn]] void throw_unreadable(std::uint64_t index, const std::string& why) const {
    throw StoreError("PackedFile", path,
                     "record " + std::to_string(index) + described(index) + " is lost: " + why,
                     index);
  }

  std::string_view name(std::uint64_t index) const noexcept {
    if (name_ends.empty()) return {};
    const std::uint64_t begin = index == 0 ? 0 : name_ends[index - 1];
    return std::string_view(names).substr(begin, name_ends[index] - begin);
  }

  std::filesystem::path path;
  ReadOnlyFile file;
  std::uint64_t bytes;  // when it was opened
  PackHeader header;
  std::string note;
  std::vector<PackEntry> entries;
  std::vector<std::uint64_t> name_ends;  // empty: there are no names
  std::string names;

 private:
  ReadOnlyFile open() const try {
    return ReadOnlyFile(path);
  } catch (const std::system_error& error) {
    refuse(error.what());
  }
  std::uint64_t size() const try { return file.size(); } catch (const std::system_error& error) {
    refuse(error.what());
  }

  std::string described(std::uint64_t index) const {
    const std::string_view text = name(index);
    return text.empty() ? std::string() : " (" + std::string(text) + ")";
  }

  /// The bytes are there: whoever calls it has compared their place with the size of the file.
  void read_at(std::uint64_t offset, std::span<std::byte> target) const {
    try {
      if (file.read(offset, target) == target.size()) return;
    } catch (const std::system_error& error) {
      refuse(error.what());
    }
    refuse("the file has become shorter while it was opened");
  }

  void read_header() {
    std::array<std::byte, kKnownBytes> room;
    const auto start = std::span(room).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(bytes, room.size())));
    read_at(0, start);
    const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
    const std::string_view magic(kPackMagic.data(), kPackMagic.size());
    if (!text.starts_with(magic.substr(0, text.size())))
      refuse("the file is no pack: it does not begin with PNSTPACK; " + what_they_are(start) +
             ". Make one with penstock-pack");
    if (bytes < sizeof(header))
      refuse(std::to_string(bytes) + " bytes are too few for a pack: it was cut. Make it again");
    std::memcpy(&header, start.data(), sizeof(header));
    if (header.checksum != checksum_of(header))
      refuse("the header is damaged: its checksum is another. Copy or make the file again");
    if (header.version > kPackVersion)
      refuse("the file has version " + std::to_string(header.version) +
             " of the format, and this "
             "is a program for version " +
             std::to_string(kPackVersion) + ": use a newer one");
    if (header.version == 0 || (header.flags & ~kPackHasNames) != 0)
      refuse("the header has an unknown version or flag. Make the file again");
    if (header.index == 0) refuse("the file is not finished: run the program again that began it");
    if (header.file_bytes != bytes)
      refuse("the file has " + std::to_string(bytes) + " bytes, and should have " +
             std::to_string(header.file_bytes) + ": it was cut, or is not copied yet");
  }

  void read_note() {
    const std::uint64_t begin = sizeof(PackHeader);
    if (header.note_bytes > kMostNoteBytes || header.note_bytes > bytes - begin)
      refuse_index("note");
    note.resize(header.note_bytes);
    read_at(begin, std::as_writable_bytes(std::span(note)));
    if (crc32c(std::as_bytes(std::span(note))) != header.note_checksum)
      refuse("the note is damaged: its checksum is another. Copy or make the file again");
  }

  /// Takes memory only for what the file has bytes for, and no more than half of what there is.
  void read_index() {
    const std::uint64_t begin = header.index;
    if (begin > bytes || begin % 8 != 0 || begin < first_frame()) refuse_index("index");
    const std::uint64_t left = bytes - begin;
    const bool has_names = (header.flags & kPackHasNames) != 0;
    const std::uint64_t each = sizeof(PackEntry) + (has_names ? sizeof(std::uint64_t) : 0);
    if (header.records > left / each || header.name_bytes != left - header.records * each ||
        (!has_names && header.name_bytes != 0))
      refuse_index("index");
    if (left > usable_memory() / 2)
      refuse("the index takes " + std::to_string(left) +
             " bytes, which are more than half of the memory");
    entries.resize(header.records);
    name_ends.resize(has_names ? header.records : 0);
    names.resize(header.name_bytes);
    std::uint64_t place = begin;
    std::uint32_t sum = 0;
    for (const auto part :
         {std::as_writable_bytes(std::span(entries)), std::as_writable_bytes(std::span(name_ends)),
          std::as_writable_bytes(std::span(names))}) {
      read_at(place, part);
      sum = crc32c(part, sum);
      place += part.size();
    }
    if (sum != header.index_checksum)
      refuse("the index is damaged: its checksum is another. Copy or make the file again");
  }

  /// Records lie one behind the other, between header and index.
  void check_entries() const {
    std::uint64_t end = first_frame();
    for (const PackEntry& entry : entries) {
      const bool in_order = entry.offset % 8 == 0 && entry.offset <= header.index &&
                            entry.offset >= end && entry.offset - end >= sizeof(PackFrame);
      if (!in_order || entry.bytes > header.index - entry.offset)
        refuse_index("place of record " + std::to_string(&entry - entries.data()));
      end = padded(entry.offset + entry.bytes);
    }
  }

  void check_names() const {
    std::uint64_t end = 0;
    for (const std::uint64_t next : name_ends)
      if (next < std::exchange(end, next)) refuse_index("list of names");
    if (!name_ends.empty() && end != names.size()) refuse_index("list of names");
    if (name_ends.empty() && !names.empty()) refuse_index("list of names");
  }

  std::uint64_t first_frame() const { return sizeof(PackHeader) + padded(header.note_bytes); }

  [[noreturn]] void refuse_index(const std::string& what) const {
    refuse("the " + what +
           " contradicts the size of the file, or what is before it, though the "
           "checksums are right: the program that wrote the file was wrong. Make the file again");
  }
};

}  // namespace detail

PENSTOCK_INLINE PackedFile::PackedFile(const std::filesystem::path& file, PackedFileOptions options)
    : verify_(options.verify), pack_(std::make_shared<const detail::Pack>(file)) {}

PENSTOCK_INLINE const detail::Pack& PackedFile::pack_with(std::uint64_t index) const {
  if (index >= size())
    throw std::out_of_range("PackedFile: there is no record " + std::to_string(index) + ", but " +
                            std::to_string(size()) + ", numbered from 0");
  return *pack_;
}

PENSTOCK_INLINE std::uint64_t PackedFile::size() const noexcept {
  return pack_->entries.size();
}

PENSTOCK_INLINE std::span<const std::byte> PackedFile::read(std::uint64_t index,
                                                            std::vector<std::byte>& scratch) const {
  const detail::Pack& pack = pack_with(index);
  const detail::PackEntry& entry = pack.entries[index];
  std::string why;
  try {
    const std::span<std::byte> target = detail::room_in(scratch, entry.bytes);
    const bool whole = pack.file.read(entry.offset, target) == target.size();
    if (whole && (!verify_ || detail::crc32c(target) == entry.bytes_checksum)) return target;
    why = whole ? "its bytes have another checksum than when they were written. Copy or make the "
                  "file again"
                : "the file has " + std::to_string(pack.file.size()) + " bytes, and had " +
                      std::to_string(pack.bytes) + " when it was opened";
  } catch (const std::system_error& error) {
    why = error.what();
  }
  pack.throw_unreadable(index, why);
}

PENSTOCK_INLINE std::uint64_t PackedFile::bytes(std::uint64_t index) const {
  return pack_with(index).entries[index].bytes;
}

PENSTOCK_INLINE std::int32_t PackedFile::label(std::uint64_t index) const {
  return pack_with(index).entries[index].label;
}

PENSTOCK_INLINE std::string PackedFile::name(std::uint64_t index) const {
  const detail::Pack& pack = pack_with(index);
  const std::string_view name = pack.name(index);
  return name.empty() ? pack.path.string() + ", record " + std::to_string(index)
                      : std::string(name);
}

PENSTOCK_INLINE void PackedFile::will_need(std::span<const std::uint64_t> indices) const noexcept {
  const auto& entries = pack_->entries;
  for (std::size_t i = 0, next = 0; i < indices.size(); i = next) {
    next = i + 1;
    if (indices[i] >= entries.size()) continue;
    std::uint64_t last = indices[i];
    for (; next < indices.size() && indices[next] == last + 1 && last + 1 < entries.size(); ++next)
      ++last;
    const std::uint64_t begin = entries[indices[i]].offset;
    const std::uint64_t end = entries[last].offset + entries[last].bytes;
    if (end > begin) pack_->file.will_need(begin, end - begin);
  }
}

PENSTOCK_INLINE PackedFileInfo PackedFile::info() const {
  PackedFileInfo info{.version = pack_->header.version,
                      .records = size(),
                      .record_bytes = 0,
                      .file_bytes = pack_->bytes,
                      .note = pack_->note};
  for (const detail::PackEntry& entry : pack_->entries) info.record_bytes += entry.bytes;
  return info;
}

}  // namespace penstock
