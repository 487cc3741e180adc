// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <penstock/detail/storage/read_only_file.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/record_file.hpp>
#include <system_error>
#include <utility>

namespace penstock {

namespace detail {

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
    if (rest != 0)
      throw StoreError("RecordFile", path,
                       sizes + ": " + std::to_string(rest) + " bytes are left over");
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

  std::filesystem::path path;
  std::uint64_t first;  // number of its first record
  ReadOnlyFile file;
  std::uint64_t bytes;  // when it was opened
};

}  // namespace detail

PENSTOCK_INLINE RecordFile::RecordFile(const std::vector<std::filesystem::path>& files,
                                       std::size_t record_bytes)
    : record_bytes_(record_bytes) {
  if (record_bytes == 0) throw std::invalid_argument("RecordFile: record_bytes is 0");
  if (files.empty()) throw std::invalid_argument("RecordFile: the list of files is empty");
  std::vector<detail::RecordPart> parts;
  parts.reserve(files.size());
  for (const std::filesystem::path& file : files)
    size_ += parts.emplace_back(file, size_, record_bytes).bytes / record_bytes;
  parts_ = std::make_shared<const std::vector<detail::RecordPart>>(std::move(parts));
}

PENSTOCK_INLINE void RecordFile::read_into(std::uint64_t index, std::span<std::byte> target) const {
  const detail::RecordPart& part = part_of(index);
  if (target.size() != record_bytes_)
    throw std::invalid_argument("RecordFile::read_into: a target of " +
                                std::to_string(target.size()) + " bytes for a record of " +
                                std::to_string(record_bytes_));
  std::string why;
  try {
    if (part.file.read((index - part.first) * record_bytes_, target) == target.size()) return;
    why = "the file has " + std::to_string(part.file.size()) + " bytes, and had " +
          std::to_string(part.bytes) + " when it was opened";
  } catch (const std::system_error& error) {
    why = error.what();
  }
  part.throw_unreadable(index, why);
}

PENSTOCK_INLINE std::span<const std::byte> RecordFile::read(std::uint64_t index,
                                                            std::vector<std::byte>& scratch) const {
  scratch.resize(record_bytes_);
  read_into(index, scratch);
  return scratch;
}

PENSTOCK_INLINE std::vector<std::byte> RecordFile::operator[](std::uint64_t index) const {
  std::vector<std::byte> record;
  read(index, record);
  return record;
}

PENSTOCK_INLINE std::string RecordFile::name(std::uint64_t index) const {
  const detail::RecordPart& part = part_of(index);
  return part.path.string() + ", record " + std::to_string(index - part.first);
}

PENSTOCK_INLINE void RecordFile::will_need(std::span<const std::uint64_t> indices) const noexcept {
  for (std::size_t i = 0, next = 0; i < indices.size(); i = next) {
    next = i + 1;
    if (indices[i] >= size_) continue;
    const detail::RecordPart& part = part_of(indices[i]);
    const std::uint64_t begin = indices[i] - part.first, all = part.bytes / record_bytes_;
    std::uint64_t end = begin + 1;
    for (; next < indices.size() && end < all && indices[next] == part.first + end; ++next) ++end;
    part.file.will_need(begin * record_bytes_, (end - begin) * record_bytes_);
  }
}

PENSTOCK_INLINE const detail::RecordPart& RecordFile::part_of(std::uint64_t index) const {
  if (index >= size_)
    throw std::out_of_range("RecordFile: there is no record " + std::to_string(index) + ", but " +
                            std::to_string(size_) + ", numbered from 0");
  const auto after = std::upper_bound(
      parts_->begin(), parts_->end(), index,
      [](std::uint64_t i, const detail::RecordPart& part) { return i < part.first; });
  return *(after - 1);
}

}  // namespace penstock
