// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordFile: fixed-size records, numbered through one or more files that are mapped into memory.
// What the page cache holds is read without a system call and without a copy.
//
//   penstock::RecordFile records{{"data_batch_1.bin", "data_batch_2.bin"}, 3073};
//   std::span<const std::byte> image = records[ticket.samples[i]];
//
// Any number of threads may read. A file that is cut short meanwhile, or cannot be read any more,
// is an error that names file and record, and never a SIGBUS: operator[] throws it, and a batch
// whose source has read such a record is a SourceError. From the first page that was found lost on,
// all of that file is. A file that grows, or is replaced by another of its name, keeps the records
// that it had. One that is written to in place shows the new bytes at any time: check_unchanged()
// asks for that.

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
  /// The record that is lost, by its number in the RecordFile; nullopt: it is about the whole file.
  std::optional<std::uint64_t> record() const noexcept { return record_; }

 private:
  std::filesystem::path file_;
  std::optional<std::uint64_t> record_;
};

namespace detail {
class RecordPart;
}

/// Move-only; a moved-from one has no records.
class RecordFile {
 public:
  /// Maps all files; record 0 is the first of the first file. Throws RecordFileError for a file
  /// that is missing, unreadable, no regular file, empty, or not a whole number of records, and
  /// std::invalid_argument for no files or records of 0 bytes.
  RecordFile(const std::vector<std::filesystem::path>& files, std::size_t record_bytes);

  RecordFile(RecordFile&&) noexcept = default;
  RecordFile& operator=(RecordFile&&) noexcept = default;

  /// Number of records.
  std::uint64_t size() const noexcept;

  std::size_t record_bytes() const noexcept { return record_bytes_; }

  /// The bytes of one record, valid as long as this object; index < size(), which is not checked.
  /// Reads a byte of each of its pages first. Throws RecordFileError where the record is lost. A
  /// file that is cut short later makes the bytes zeros: in a source, this makes the batch a
  /// SourceError; elsewhere, or where other threads read for the source, call check_unchanged().
  std::span<const std::byte> operator[](std::uint64_t index) const;

  /// As operator[], but throws std::out_of_range.
  std::span<const std::byte> at(std::uint64_t index) const;

  /// Asks the system to read these records ahead, all below size(), and does not wait for it. Worth
  /// it at the start of a batch where files are larger than the page cache: the device then works
  /// on all records at once, and not on one page fault after the other. Costs a system call for
  /// each run of neighbours in `records`. A hint: it has no errors.
  void prefetch(std::span<const std::uint64_t> records) const noexcept;

  /// Throws RecordFileError unless each file is still the one that was opened, with the size and
  /// the time of last modification that it had. A few system calls for each file: for the start of
  /// an epoch, or the end of a run. Writes within a tick of the file system's clock go unseen.
  void check_unchanged() const;

 private:
  struct Part {
    std::uint64_t first;  ///< number of its first record
    std::shared_ptr<const detail::RecordPart> file;
  };

  const Part& part_of(std::uint64_t index) const noexcept;

  std::size_t record_bytes_;
  std::vector<Part> parts_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/storage/record_file.hpp>
#endif
