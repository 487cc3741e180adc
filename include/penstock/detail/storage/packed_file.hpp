// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/name_arena.hpp>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/packed_format.hpp>
#include <penstock/detail/storage/queued_samples.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/packed_file.hpp>
#include <stdexcept>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// An open pack and its index.
struct Pack : StoreFile {
  explicit Pack(const File& open_file) : StoreFile("PackedFile", open_file) {
    read_header();
    read_note();
    read_index();
    check_entries();
    if (!names.is_whole()) fail_index("list of names");
  }

  [[noreturn]] void fail_record(std::uint64_t index, const std::string& why) const {
    const std::string known = name(index).empty() ? "" : " (" + std::string(name(index)) + ")";
    fail("record " + std::to_string(index) + known + " is lost: " + why, index);
  }

  std::string_view name(std::uint64_t index) const noexcept {
    return has_names() ? names[index] : std::string_view();
  }

  PackHeader header;
  std::string note;
  std::vector<PackEntry> entries;
  NameArena names;  // empty: there are none

 private:
  void read_header() {
    std::array<std::byte, kKnownBytes> room;
    const std::span<const std::byte> start = read_start(room);
    const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
    const std::string_view magic(kPackMagic.data(), kPackMagic.size());
    if (!text.starts_with(magic.substr(0, text.size())))
      fail("the file is no pack: it does not begin with PNSTPACK; " + what_they_are(start) +
           ". Make one with penstock-pack");
    if (bytes < sizeof(header))
      fail(std::to_string(bytes) + " bytes are too few for a pack: it was cut. Make it again");
    std::memcpy(&header, start.data(), sizeof(header));
    if (header.checksum != checksum_of(header))
      fail("the header is damaged: its checksum is another. Copy or make the file again");
    if (header.version > kPackVersion)
      fail("the file has version " + std::to_string(header.version) +
           " of the format, and this "
           "is a program for version " +
           std::to_string(kPackVersion) + ": use a newer one");
    if (header.version == 0 || (header.flags & ~kPackHasNames) != 0)
      fail("the header has an unknown version or flag. Make the file again");
    if (header.index == 0) fail("the file is not finished: run the program again that began it");
    if (header.file_bytes != bytes)
      fail("the file has " + std::to_string(bytes) + " bytes, and should have " +
           std::to_string(header.file_bytes) + ": it was cut, or is not copied yet");
  }

  void read_note() {
    const std::uint64_t begin = sizeof(PackHeader);
    if (header.note_bytes > kMostNoteBytes || header.note_bytes > bytes - begin) fail_index("note");
    note.resize(header.note_bytes);
    read_or_fail(begin, std::as_writable_bytes(std::span(note)));
    if (crc32c(std::as_bytes(std::span(note))) != header.note_checksum)
      fail("the note is damaged: its checksum is another. Copy or make the file again");
  }

  /// Takes memory only for what the file has bytes for, and no more than half of what there is.
  void read_index() {
    const std::uint64_t begin = header.index;
    if (begin > bytes || begin % 8 != 0 || begin < first_frame()) fail_index("index");
    const std::uint64_t left = bytes - begin;
    const std::uint64_t each = sizeof(PackEntry) + (has_names() ? sizeof(std::uint64_t) : 0);
    if (header.records > left / each || header.name_bytes != left - header.records * each ||
        (!has_names() && header.name_bytes != 0))
      fail_index("index");
    if (left > usable_memory() / 2)
      fail("the index takes " + std::to_string(left) +
           " bytes, which are more than half of the memory");
    entries.resize(header.records);
    names.resize(has_names() ? header.records : 0, header.name_bytes);
    std::uint64_t place = begin;
    std::uint32_t sum = 0;
    for (const auto part :
         {std::as_writable_bytes(std::span(entries)), std::as_writable_bytes(names.ends()),
          std::as_writable_bytes(names.bytes())}) {
      read_or_fail(place, part);
      sum = crc32c(part, sum);
      place += part.size();
    }
    if (sum != header.index_checksum)
      fail("the index is damaged: its checksum is another. Copy or make the file again");
  }

  /// Records lie one behind the other, between header and index.
  void check_entries() const {
    std::uint64_t end = first_frame();
    for (const PackEntry& entry : entries) {
      const bool in_order = entry.offset % 8 == 0 && entry.offset <= header.index &&
                            entry.offset >= end && entry.offset - end >= sizeof(PackFrame);
      if (!in_order || entry.bytes > header.index - entry.offset)
        fail_index("place of record " + std::to_string(&entry - entries.data()));
      end = padded(entry.offset + entry.bytes);
    }
  }

  bool has_names() const noexcept { return (header.flags & kPackHasNames) != 0; }

  std::uint64_t first_frame() const { return sizeof(PackHeader) + padded(header.note_bytes); }

  [[noreturn]] void fail_index(const std::string& what) const {
    fail("the " + what +
         " contradicts the size of the file, or what is before it, though the "
         "checksums are right: the program that wrote the file was wrong. Make the file again");
  }
};

}  // namespace detail

PENSTOCK_INLINE PackedFile::PackedFile(const std::filesystem::path& file, PackedFileOptions options)
    : PackedFile(detail::opened("PackedFile", file), options) {}

PENSTOCK_INLINE PackedFile::PackedFile(const File& file, PackedFileOptions options)
    : verify_(options.verify), pack_(std::make_shared<const detail::Pack>(file)) {}

PENSTOCK_INLINE const detail::Pack& PackedFile::pack_with(std::uint64_t index) const {
  detail::require_index(index, size(), "PackedFile: there is no record ");
  return *pack_;
}

PENSTOCK_INLINE std::uint64_t PackedFile::size() const noexcept {
  return pack_->entries.size();
}

PENSTOCK_INLINE std::span<const std::byte> PackedFile::read(std::uint64_t index,
                                                            std::vector<std::byte>& scratch) const {
  const detail::Pack& pack = pack_with(index);
  const detail::PackEntry& entry = pack.entries[index];
  try {
    const auto bytes = pack.read(entry.offset, detail::room_in(scratch, entry.bytes));
    if (is_right(index, bytes)) return bytes;
    throw std::runtime_error(
        "its bytes have another checksum than when they were written. Copy or make the file again");
  } catch (const std::runtime_error& error) {
    pack.fail_record(index, error.what());
  }
}

PENSTOCK_INLINE bool PackedFile::is_right(std::uint64_t index,
                                          std::span<const std::byte> bytes) const {
  return !verify_ || detail::crc32c(bytes) == pack_->entries[index].bytes_checksum;
}

PENSTOCK_INLINE void PackedFile::read_many(std::span<const std::uint64_t> indices, ReadQueue& queue,
                                           EachSample each) const {
  const auto place_of = [&](std::size_t k) -> detail::SamplePlace {
    const detail::PackEntry& entry = pack_with(indices[k]).entries[indices[k]];
    return {pack_->file, entry.offset, entry.bytes};
  };
  const auto alone = [&](std::size_t k) { each(k, read(indices[k], queue.engine().scratch())); };
  const auto arrived = [&](std::size_t k, std::span<const std::byte> bytes) {
    is_right(indices[k], bytes) ? each(k, bytes) : alone(k);
  };
  detail::read_queued(queue, pack_->bytes, indices.size(), place_of, arrived, alone);
}

PENSTOCK_INLINE void PackedFile::read_many_into(std::span<const std::uint64_t> indices,
                                                std::span<const std::span<std::byte>> targets,
                                                ReadQueue& queue) const {
  if (targets.size() != indices.size())
    throw std::invalid_argument("PackedFile::read_many_into: " + std::to_string(targets.size()) +
                                " targets for " + std::to_string(indices.size()) + " records");
  const auto place_of = [&](std::size_t k) -> detail::SamplePlace {
    const detail::PackEntry& entry = pack_with(indices[k]).entries[indices[k]];
    if (targets[k].size() != entry.bytes)
      throw std::invalid_argument("PackedFile::read_many_into: a target of " +
                                  std::to_string(targets[k].size()) + " bytes for record " +
                                  std::to_string(indices[k]) + ", which has " +
                                  std::to_string(entry.bytes));
    return {pack_->file, entry.offset, entry.bytes, targets[k].data()};
  };
  const auto alone = [&](std::size_t k) {
    std::ranges::copy(read(indices[k], queue.engine().scratch()), targets[k].begin());
  };
  const auto arrived = [&](std::size_t k, std::span<const std::byte> bytes) {
    if (!is_right(indices[k], bytes)) alone(k);
  };
  detail::read_queued(queue, pack_->bytes, indices.size(), place_of, arrived, alone);
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
  return name.empty() ? pack.file.name() + ", record " + std::to_string(index) : std::string(name);
}

PENSTOCK_INLINE FilePlace PackedFile::place(std::uint64_t index) const {
  const detail::PackEntry& entry = pack_with(index).entries[index];
  return {pack_->file, {entry.offset, entry.bytes}};
}

PENSTOCK_INLINE void PackedFile::will_need(
    std::span<const std::uint64_t> indices,
    std::chrono::steady_clock::time_point due) const noexcept {
  const auto add_place = [this](std::uint64_t index, detail::NeededRanges& ranges) {
    const detail::PackEntry& entry = pack_->entries[index];
    ranges.add(pack_->file, {entry.offset, entry.bytes});
  };
  detail::NeededRanges::ask(indices, size(), due, add_place);
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
