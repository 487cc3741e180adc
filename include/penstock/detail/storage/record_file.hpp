// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <penstock/detail/storage/gathered_read.hpp>
#include <penstock/detail/storage/record_part.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/record_file.hpp>
#include <span>
#include <string>
#include <utility>

namespace penstock {

namespace detail {

/// One of the records that read_many() is asked for.
struct WantedRecord {
  std::uint64_t index;
  std::byte* target;
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
  try {
    part.read((index - part.first) * record_bytes_, target);
  } catch (const std::runtime_error& error) {
    part.fail_record(index, error.what());
  }
}

PENSTOCK_INLINE void RecordFile::read_many(std::span<const std::uint64_t> indices,
                                           std::span<std::byte> target) const {
  check_many("RecordFile::read_many", indices, target);
  std::array<detail::WantedRecord, 1024> memory;
  std::byte* place = target.data();
  while (!indices.empty()) {
    const std::size_t count = std::min(indices.size(), memory.size());
    for (std::size_t i = 0; i < count; ++i, place += record_bytes_) memory[i] = {indices[i], place};
    indices = indices.subspan(count);
    const auto wanted = std::span(memory).first(count);
    std::ranges::sort(wanted, {}, &detail::WantedRecord::index);
    read_sorted(wanted);
  }
}

PENSTOCK_INLINE void RecordFile::read_sorted(std::span<const detail::WantedRecord> wanted) const {
  for (std::size_t i = 0, next = 0; i < wanted.size(); i = next) {
    const detail::RecordPart& part = part_of(wanted[i].index);
    const std::uint64_t end = part.end(record_bytes_);
    detail::GatheredRead together((wanted[i].index - part.first) * record_bytes_);
    together.add({wanted[i].target, record_bytes_});
    for (next = i + 1; next < wanted.size() && together.has_room(); ++next) {
      const std::uint64_t index = wanted[next].index, before = wanted[next - 1].index;
      if (index >= end || index == before) break;
      if (index - before - 1 > detail::GatheredRead::kMostGap / record_bytes_) break;
      together.skip(static_cast<std::size_t>(index - before - 1) * record_bytes_);
      together.add({wanted[next].target, record_bytes_});
    }
    // The reads of the single records find the one that is lost, and say why.
    if (!together.read(part.file))
      for (const auto& [index, target] : wanted.subspan(i, next - i))
        read_into(index, {target, record_bytes_});
  }
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
  require_index(index);
  return *(std::ranges::upper_bound(*parts_, index, {}, &detail::RecordPart::first) - 1);
}

PENSTOCK_INLINE void RecordFile::check_many(const char* function,
                                            std::span<const std::uint64_t> indices,
                                            std::span<const std::byte> target) const {
  if (target.size() % record_bytes_ != 0 || target.size() / record_bytes_ != indices.size())
    throw std::invalid_argument(
        std::string(function) + ": a target of " + std::to_string(target.size()) + " bytes for " +
        std::to_string(indices.size()) + " records of " + std::to_string(record_bytes_));
  for (const std::uint64_t index : indices) require_index(index);
}

PENSTOCK_INLINE void RecordFile::require_index(std::uint64_t index) const {
  detail::require_index(index, size_, "RecordFile: there is no record ");
}

}  // namespace penstock
