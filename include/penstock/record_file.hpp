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

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <penstock/detail/storage/file_reads.hpp>
#include <penstock/detail/storage/mapped_file.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace penstock {

/// A file cannot be read as fixed-size records, or not any more. `what()` names it, its size, and
/// what is wrong.
class RecordFileError : public std::runtime_error {
 public:
  RecordFileError(const std::filesystem::path& file, const std::string& why,
                  std::optional<std::uint64_t> record = {})
      : std::runtime_error("RecordFile: " + file.string() + ": " + why),
        file_(file),
        record_(record) {}
  const std::filesystem::path& file() const noexcept { return file_; }
  /// The record that is lost, by its number in the RecordFile; nullopt: it is about the whole file.
  std::optional<std::uint64_t> record() const noexcept { return record_; }

 private:
  std::filesystem::path file_;
  std::optional<std::uint64_t> record_;
};

namespace detail {

/// One of the files of a RecordFile.
class RecordPart final : public ReadableFile {
 public:
  /// Throws RecordFileError unless it is a whole number of records. Its first one has number
  /// `first` in the RecordFile.
  RecordPart(const std::filesystem::path& path, std::uint64_t first, std::size_t record_bytes)
      : path_(path), first_(first), record_bytes_(record_bytes), map_(open(path)) {
    const std::size_t bytes = map_.bytes().size(), rest = bytes % record_bytes;
    const std::string sizes =
        std::to_string(bytes) + " bytes, in records of " + std::to_string(record_bytes) + " bytes";
    if (bytes == 0) throw RecordFileError(path, sizes + ": the file is empty");
    if (rest != 0)
      throw RecordFileError(path, sizes + ": " + std::to_string(rest) + " bytes are left over");
  }

  std::uint64_t records() const noexcept { return map_.bytes().size() / record_bytes_; }

  std::size_t offset(std::uint64_t index) const noexcept {
    return static_cast<std::size_t>(index - first_) * record_bytes_;
  }
  std::span<const std::byte> bytes(std::uint64_t index) const noexcept {
    return map_.bytes().subspan(offset(index), record_bytes_);
  }

  /// After each page of the record was read once, it is known whether it is there.
  void probe(std::uint64_t index) const {
    touch(bytes(index));
    const std::size_t end = offset(index) + record_bytes_;
    if (map_.intact_bytes() < end) [[unlikely]]
      throw_lost(end);
  }

  void require(std::size_t bytes) const override {
    // A file that was cut off in the middle of a page still has that page, with zeros behind its
    // end. So the page behind the last one of `bytes` tells, and where that is lost or there is
    // none, the system.
    const std::size_t next_page = (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
    if (next_page < map_.bytes().size()) {
      touch(map_.bytes().subspan(next_page, 1));
      if (map_.intact_bytes() > next_page) return;
    }
    if (map_.bytes_left(path_) < bytes) throw_lost(bytes);
  }

  void require_unchanged() const {
    require(map_.bytes().size());
    if (const std::string change = map_.change(path_); !change.empty())
      throw RecordFileError(path_, "the file is not what it was when it was opened: " + change);
  }

 private:
  static MappedFile open(const std::filesystem::path& path) {
    try {
      return MappedFile(path);
    } catch (const std::system_error& error) {
      throw RecordFileError(path, error.what());
    }
  }

  /// Reads one byte of each page. No page has less than 4096.
  static void touch(std::span<const std::byte> bytes) noexcept {
    constexpr std::size_t kSmallestPage = 4096;
    const volatile std::byte* const data = bytes.data();
    std::byte read = data[bytes.size() - 1];
    for (std::size_t i = 0; i < bytes.size(); i += kSmallestPage) read = data[i];
    static_cast<void>(read);
  }

  /// `end` is where the record ends that was asked for.
  [[noreturn]] void throw_lost(std::size_t end) const {
    const std::uint64_t in_file = end / record_bytes_ - 1, record = first_ + in_file;
    const std::string change = map_.change(path_);
    throw RecordFileError(path_,
                          "record " + std::to_string(record) + ", " + std::to_string(in_file) +
                              " of the file, is lost: " +
                              (change.empty() ? std::string("it cannot be read any more") : change),
                          record);
  }

  const std::filesystem::path path_;
  const std::uint64_t first_;
  const std::size_t record_bytes_;
  const MappedFile map_;
};

}  // namespace detail

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
    parts_.reserve(files.size());
    for (const std::filesystem::path& file : files)
      parts_.push_back(
          {size(), std::make_shared<const detail::RecordPart>(file, size(), record_bytes)});
  }

  RecordFile(RecordFile&&) noexcept = default;
  RecordFile& operator=(RecordFile&&) noexcept = default;

  /// Number of records.
  std::uint64_t size() const noexcept {
    return parts_.empty() ? 0 : parts_.back().first + parts_.back().file->records();
  }

  std::size_t record_bytes() const noexcept { return record_bytes_; }

  /// The bytes of one record, valid as long as this object; index < size(), which is not checked.
  /// Reads a byte of each of its pages first. Throws RecordFileError where the record is lost. A
  /// file that is cut short later makes the bytes zeros: in a source, this makes the batch a
  /// SourceError; elsewhere, or where other threads read for the source, call check_unchanged().
  std::span<const std::byte> operator[](std::uint64_t index) const {
    const Part& part = part_of(index);
    part.file->probe(index);
    detail::FileReads::note(part.file, part.file->offset(index) + record_bytes_);
    return part.file->bytes(index);
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
      const std::span<const std::byte> record = part_of(index).file->bytes(index);
      if (!run.empty() && run.data() + run.size() == record.data()) {
        run = {run.data(), run.size() + record.size()};
      } else {
        will_need(run);
        run = record;
      }
    }
    will_need(run);
  }

  /// Throws RecordFileError unless each file is still the one that was opened, with the size and
  /// the time of last modification that it had. A few system calls for each file: for the start of
  /// an epoch, or the end of a run. Writes within a tick of the file system's clock go unseen.
  void check_unchanged() const {
    for (const Part& part : parts_) part.file->require_unchanged();
  }

 private:
  struct Part {
    std::uint64_t first;  ///< number of its first record
    std::shared_ptr<const detail::RecordPart> file;
  };

  const Part& part_of(std::uint64_t index) const noexcept {
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), index,
                         [](std::uint64_t i, const Part& part) { return i < part.first; });
    return *(after - 1);
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
  std::vector<Part> parts_;
};

}  // namespace penstock
