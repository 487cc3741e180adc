// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordPart: one of the files of a RecordFile, which is open for reading.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/detail/read_only_file.hpp>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <system_error>

namespace penstock::detail {

/// One of the files of a RecordFile.
struct RecordPart {
  /// Throws StoreError unless the file is a whole number of records.
  RecordPart(const std::filesystem::path& name, std::uint64_t first_record,
             std::size_t record_bytes) try
      : path(name), first(first_record), file(name), bytes(file.size()) {
    const std::uint64_t rest = bytes % record_bytes;
    const std::string sizes =
        std::to_string(bytes) + " bytes, in records of " + std::to_string(record_bytes) + " bytes";
    if (bytes == 0) throw StoreError("RecordFile", path, sizes + ": the file is empty");
    std::array<std::byte, kKnownBytes> start;
    const auto read = std::span(start).first(file.read(0, start));
    const std::optional<KnownBytes> known = known_bytes(read);
    const std::string what = known ? ". It is " + known->text() : "";
    if (rest != 0)
      throw StoreError("RecordFile", path,
                       sizes + ": " + std::to_string(rest) + " bytes are left over" + what);
    // Records may have any bytes, but for these.
    if (is_lfs_pointer({reinterpret_cast<const char*>(read.data()), read.size()}))
      throw StoreError("RecordFile", path, "there are no records in it" + what);
  } catch (const std::system_error& error) {
    throw StoreError("RecordFile", name, error.what());
  }

  /// Of record `index` of the RecordFile.
  [[noreturn]] void throw_unreadable(std::uint64_t index, const std::string& why) const {
    throw StoreError("RecordFile", path,
                     "record " + std::to_string(index - first) +
                         " (of all files: " + std::to_string(index) + ") is lost: " + why,
                     index);
  }

  std::string shorter_by_now(std::uint64_t bytes_now) const {
    return "the file has " + std::to_string(bytes_now) + " bytes, and had " +
           std::to_string(bytes) + " when it was opened";
  }
  std::uint64_t end(std::size_t record_bytes) const { return first + bytes / record_bytes; }

  std::filesystem::path path;
  std::uint64_t first;  // number of its first record
  ReadOnlyFile file;
  std::uint64_t bytes;  // when it was opened
};

}  // namespace penstock::detail
