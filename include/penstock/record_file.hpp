// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordFile: fixed-size records, numbered through one or more files and read with pread.
//
//   penstock::RecordFile records{{"data_batch_1.bin", "data_batch_2.bin"}, 3073};
//   std::vector<std::byte> scratch;                                     // one for each thread
//   std::span<const std::byte> image = records.read(ticket.samples[i], scratch);

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <penstock/detail/inline.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock {

/// A file cannot be read as fixed-size records, or not any more. `what()` names it, its size, and
/// what is wrong.
class RecordFileError : public std::runtime_error {
 public:
  RecordFileError(const std::filesystem::path& file, const std::string& why,
                  std::optional<std::uint64_t> record = {});
  const std::filesystem::path& file() const noexcept { return file_; }
  /// The record that cannot be read, by its number in the RecordFile; nullopt: it is about the
  /// whole file.
  std::optional<std::uint64_t> record() const noexcept { return record_; }

 private:
  std::filesystem::path file_;
  std::optional<std::uint64_t> record_;
};

namespace detail {
struct RecordPart;
}

/// Any number of threads may use one object. The files stay open as long as it, or a copy of it,
/// exists; a copy shares them. A file that is renamed, removed or replaced by another of its name
/// is read on. One that is written to in place shows the new bytes at any time.
class RecordFile {
 public:
  /// Opens all files; record 0 is the first of the first file. Throws RecordFileError for a file
  /// that is missing, unreadable, no regular file, empty, or not a whole number of records, and
  /// std::invalid_argument for no files or records of 0 bytes.
  RecordFile(const std::vector<std::filesystem::path>& files, std::size_t record_bytes);
  RecordFile(const RecordFile&) = default;  // A move is a copy: no RecordFile is without its files.
  RecordFile& operator=(const RecordFile&) = default;

  /// Number of records.
  std::uint64_t size() const noexcept { return size_; }

  std::size_t record_bytes() const noexcept { return record_bytes_; }

  /// Reads a record into `target`, of record_bytes() bytes: for example straight into the batch.
  /// Throws std::out_of_range for index >= size(), std::invalid_argument for a target of another
  /// size, and RecordFileError where the file has become too short or the system cannot read it.
  void read_into(std::uint64_t index, std::span<std::byte> target) const;

  /// Reads a record into `scratch`, which it resizes, and returns all of it: valid until `scratch`
  /// is used again. Allocates only where `scratch` has no room. Throws as read_into().
  std::span<const std::byte> read(std::uint64_t index, std::vector<std::byte>& scratch) const;

  /// A record in memory of its own, which every call allocates: in a loop use read() or
  /// read_into(). Keep it as `auto record = records[i]`; a span of it ends with it. Throws as
  /// read_into().
  [[nodiscard]] std::vector<std::byte> operator[](std::uint64_t index) const;

  /// For messages: "data_batch_2.bin, record 12", by its number in that file. Throws
  /// std::out_of_range.
  std::string name(std::uint64_t index) const;

  /// Asks the system to read these records ahead, and does not wait for it. Worth it at the start
  /// of a batch where files are larger than the page cache. Costs a system call for each run of
  /// neighbours in `indices`. A hint: it has no errors, and ignores what is not below size().
  void will_need(std::span<const std::uint64_t> indices) const noexcept;

 private:
  const detail::RecordPart& part_of(std::uint64_t index) const;

  std::size_t record_bytes_;
  std::uint64_t size_ = 0;
  std::shared_ptr<const std::vector<detail::RecordPart>> parts_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/record_file.hpp>
#endif
