// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordFile: fixed-size records, numbered through one or more files that are mapped into memory.
// What the page cache holds is read without a system call and without a copy.
//
//   penstock::RecordFile records{{"data_batch_1.bin", "data_batch_2.bin"}, 3073};
//   std::span<const std::byte> image = records[ticket.samples[i]];
//
// Any number of threads may read. The files must keep their size meanwhile: reading a record that a
// file has lost since ends the program with SIGBUS, as with every mapped file.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <penstock/detail/mapped_file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace penstock {

/// A file cannot be read as fixed-size records. `what()` names it, its size and what is left over.
class RecordFileError : public std::runtime_error {
 public:
  RecordFileError(const std::filesystem::path& file, const std::string& why)
      : std::runtime_error("RecordFile: " + file.string() + ": " + why), file_(file) {}
  const std::filesystem::path& file() const noexcept { return file_; }

 private:
  std::filesystem::path file_;
};

/// Move-only; a moved-from one has no records.
class RecordFile {
 public:
  /// Maps all files; record 0 is the first of the first file. Throws RecordFileError for a file
  /// that is missing, unreadable, no regular file, empty, or not a whole number of records, and
  /// std::invalid_argument for no files or records of 0 bytes.
  RecordFile(const std::vector<std::filesystem::path>& files, std::size_t record_bytes)
      : record_bytes_(record_bytes) {
    if (record_bytes == 0) throw std::invalid_argument("RecordFile: record_bytes is 0");
    if (files.empty()) throw std::invalid_argument("RecordFile: the list of files is empty");
    files_.reserve(files.size());
    for (const std::filesystem::path& file : files) files_.push_back({size(), map(file)});
  }

  RecordFile(RecordFile&&) noexcept = default;
  RecordFile& operator=(RecordFile&&) noexcept = default;

  /// Number of records.
  std::uint64_t size() const noexcept {
    return files_.empty() ? 0 : files_.back().first + count(files_.back());
  }

  std::size_t record_bytes() const noexcept { return record_bytes_; }

  /// The bytes of one record, valid as long as this object; index < size(), which is not checked.
  std::span<const std::byte> operator[](std::uint64_t index) const noexcept {
    const File& file = file_of(index);
    return file.map.bytes().subspan(offset_in(file, index), record_bytes_);
  }

  /// As operator[], but throws std::out_of_range.
  std::span<const std::byte> at(std::uint64_t index) const {
    if (index >= size())
      throw std::out_of_range("RecordFile: record " + std::to_string(index) + " of " +
                              std::to_string(size()));
    return (*this)[index];
  }

  /// Asks the system to read these records ahead, all below size(), and does not wait for it. Worth
  /// it at the start of a batch where files are larger than the page cache: the device then works
  /// on all records at once, and not on one page fault after the other. Costs a system call for
  /// each run of neighbours in `records`. A hint: it has no errors.
  void prefetch(std::span<const std::uint64_t> records) const noexcept {
    std::span<const std::byte> run;
    for (const std::uint64_t index : records) {
      const std::span<const std::byte> record = (*this)[index];
      if (!run.empty() && run.data() + run.size() == record.data()) {
        run = {run.data(), run.size() + record.size()};
      } else {
        will_need(run);
        run = record;
      }
    }
    will_need(run);
  }

 private:
  struct File {
    std::uint64_t first;  ///< number of its first record
    detail::MappedFile map;
  };

  detail::MappedFile map(const std::filesystem::path& path) const {
    try {
      detail::MappedFile file(path);
      const std::size_t bytes = file.bytes().size(), rest = bytes % record_bytes_;
      const std::string sizes = std::to_string(bytes) + " bytes, in records of " +
                                std::to_string(record_bytes_) + " bytes";
      if (bytes == 0) throw RecordFileError(path, sizes + ": the file is empty");
      if (rest != 0)
        throw RecordFileError(path, sizes + ": " + std::to_string(rest) + " bytes are left over");
      return file;
    } catch (const std::system_error& error) {
      throw RecordFileError(path, error.what());
    }
  }

  std::uint64_t count(const File& file) const noexcept {
    return file.map.bytes().size() / record_bytes_;
  }

  const File& file_of(std::uint64_t index) const noexcept {
    const auto after =
        std::upper_bound(files_.begin(), files_.end(), index,
                         [](std::uint64_t i, const File& file) { return i < file.first; });
    return *(after - 1);
  }
  std::size_t offset_in(const File& file, std::uint64_t index) const noexcept {
    return static_cast<std::size_t>(index - file.first) * record_bytes_;
  }

  /// madvise wants the start of a page; a mapping starts with one.
  static void will_need(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t into_page = reinterpret_cast<std::uintptr_t>(bytes.data()) % page;
    ::madvise(const_cast<std::byte*>(bytes.data() - into_page), bytes.size() + into_page,
              MADV_WILLNEED);
  }

  std::size_t record_bytes_;
  std::vector<File> files_;
};

}  // namespace penstock
