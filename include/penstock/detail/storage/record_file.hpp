// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <penstock/detail/storage/file_reads.hpp>
#include <penstock/detail/storage/mapped_file.hpp>
#include <penstock/record_file.hpp>
#include <system_error>

namespace penstock {

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

/// madvise wants the start of a page; a mapping starts with one.
inline void will_need(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t into_page = reinterpret_cast<std::uintptr_t>(bytes.data()) % page;
  ::madvise(const_cast<std::byte*>(bytes.data() - into_page), bytes.size() + into_page,
            MADV_WILLNEED);
}

}  // namespace detail

PENSTOCK_INLINE RecordFileError::RecordFileError(const std::filesystem::path& file,
                                                 const std::string& why,
                                                 std::optional<std::uint64_t> record)
    : std::runtime_error("RecordFile: " + file.string() + ": " + why),
      file_(file),
      record_(record) {}

PENSTOCK_INLINE RecordFile::RecordFile(const std::vector<std::filesystem::path>& files,
                                       std::size_t record_bytes)
    : record_bytes_(record_bytes) {
  if (record_bytes == 0) throw std::invalid_argument("RecordFile: record_bytes is 0");
  if (files.empty()) throw std::invalid_argument("RecordFile: the list of files is empty");
  parts_.reserve(files.size());
  for (const std::filesystem::path& file : files)
    parts_.push_back(
        {size(), std::make_shared<const detail::RecordPart>(file, size(), record_bytes)});
}

PENSTOCK_INLINE std::uint64_t RecordFile::size() const noexcept {
  return parts_.empty() ? 0 : parts_.back().first + parts_.back().file->records();
}

PENSTOCK_INLINE std::span<const std::byte> RecordFile::operator[](std::uint64_t index) const {
  const Part& part = part_of(index);
  part.file->probe(index);
  detail::FileReads::note(part.file, part.file->offset(index) + record_bytes_);
  return part.file->bytes(index);
}

PENSTOCK_INLINE std::span<const std::byte> RecordFile::at(std::uint64_t index) const {
  if (index >= size())
    throw std::out_of_range("RecordFile: record " + std::to_string(index) + " of " +
                            std::to_string(size()));
  return (*this)[index];
}

PENSTOCK_INLINE void RecordFile::prefetch(std::span<const std::uint64_t> records) const noexcept {
  std::span<const std::byte> run;
  for (const std::uint64_t index : records) {
    const std::span<const std::byte> record = part_of(index).file->bytes(index);
    if (!run.empty() && run.data() + run.size() == record.data()) {
      run = {run.data(), run.size() + record.size()};
    } else {
      detail::will_need(run);
      run = record;
    }
  }
  detail::will_need(run);
}

PENSTOCK_INLINE void RecordFile::check_unchanged() const {
  for (const Part& part : parts_) part.file->require_unchanged();
}

PENSTOCK_INLINE const RecordFile::Part& RecordFile::part_of(std::uint64_t index) const noexcept {
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), index,
                       [](std::uint64_t i, const Part& part) { return i < part.first; });
  return *(after - 1);
}

}  // namespace penstock
