// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordPart: one of the files of a RecordFile, which is open for reading.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <span>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

/// One of the files of a RecordFile, or a part of one.
struct RecordPart : StoreFile {
  /// Throws StoreError unless the file is a whole number of records.
  RecordPart(const File& open_file, std::uint64_t first_record, std::size_t record_bytes)
      : StoreFile("RecordFile", open_file), first(first_record), records(bytes / record_bytes) {
    const std::uint64_t rest = bytes % record_bytes;
    const std::string sizes =
        std::to_string(bytes) + " bytes, in records of " + std::to_string(record_bytes) + " bytes";
    if (bytes == 0) fail(sizes + ": the file is empty");
    std::array<std::byte, kKnownBytes> room;
    const std::span<const std::byte> start = read_start(room);
    const std::optional<KnownBytes> known = known_bytes(start);
    const std::string what = known ? ". It is " + known->text() : "";
    if (rest != 0) fail(sizes + ": " + std::to_string(rest) + " bytes are left over" + what);
    // Records may have any bytes, but for these.
    if (is_lfs_pointer({reinterpret_cast<const char*>(start.data()), start.size()}))
      fail("there are no records in it" + what);
  }

  /// Throws StoreError unless the part of the file is there, and is a whole number of records.
  RecordPart(const File& open_file, FileRange part, std::size_t record_bytes)
      : StoreFile("RecordFile", open_file),
        first(0),
        begin(part.offset),
        records(part.bytes / record_bytes) {
    const std::string what =
        "the " + std::to_string(part.bytes) + " bytes from byte " + std::to_string(begin) + " on";
    if (begin > bytes || part.bytes > bytes - begin)
      fail(what + " do not fit into the file's " + std::to_string(bytes) + ": it was cut");
    if (part.bytes == 0 || part.bytes % record_bytes != 0)
      fail(what + " are no whole number of records of " + std::to_string(record_bytes) + " bytes");
  }

  /// Of record `index` of the RecordFile.
  [[noreturn]] void fail_record(std::uint64_t index, const std::string& why) const {
    fail("record " + std::to_string(index - first) + " (of all files: " + std::to_string(index) +
             ") is lost: " + why,
         index);
  }

  std::uint64_t end() const { return first + records; }
  /// Where record `index` of the RecordFile begins in the file.
  std::uint64_t place_of(std::uint64_t index, std::size_t record_bytes) const {
    return begin + (index - first) * record_bytes;
  }

  std::uint64_t first;      // number of its first record
  std::uint64_t begin = 0;  // of that record in the file, in bytes
  std::uint64_t records;    // how many
};

}  // namespace penstock::detail
