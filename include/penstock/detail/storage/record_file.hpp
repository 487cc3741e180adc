// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <penstock/detail/storage/gathered_read.hpp>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/queued_samples.hpp>
#include <penstock/detail/storage/record_part.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/record_file.hpp>
#include <span>
#include <string>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// One of the records that read_many() is asked for.
struct WantedRecord {
  std::uint64_t index;
  std::byte* target;
};

/// `files`: Files or paths.
template <class AnyFile>
std::vector<RecordPart> record_parts(std::span<const AnyFile> files, std::size_t record_bytes) {
  if (record_bytes == 0) throw std::invalid_argument("RecordFile: record_bytes is 0");
  if (files.empty()) throw std::invalid_argument("RecordFile: the list of files is empty");
  std::vector<RecordPart> parts;
  parts.reserve(files.size());
  for (const AnyFile& file : files) {
    const std::uint64_t first = parts.empty() ? 0 : parts.back().end();
    parts.emplace_back(opened("RecordFile", file), first, record_bytes);
  }
  return parts;
}
inline std::vector<RecordPart> record_parts(const File& file, FileRange part,
                                            std::size_t record_bytes) {
  if (record_bytes == 0) throw std::invalid_argument("RecordFile: record_bytes is 0");
  return {RecordPart(file, part, record_bytes)};
}

}  // namespace detail

PENSTOCK_INLINE RecordFile::RecordFile(const std::vector<std::filesystem::path>& files,
                                       std::size_t record_bytes)
    : RecordFile(record_bytes, detail::record_parts(std::span(files), record_bytes)) {}

PENSTOCK_INLINE RecordFile::RecordFile(const File* files, std::size_t count,
                                       std::size_t record_bytes)
    : RecordFile(record_bytes, detail::record_parts(std::span(files, count), record_bytes)) {}

PENSTOCK_INLINE RecordFile::RecordFile(const File& file, FileRange part, std::size_t record_bytes)
    : RecordFile(record_bytes, detail::record_parts(file, part, record_bytes)) {}

PENSTOCK_INLINE RecordFile::RecordFile(std::size_t record_bytes,
                                       std::vector<detail::RecordPart>&& parts)
    : record_bytes_(record_bytes),
      size_(parts.back().end()),
      is_local_(std::ranges::all_of(parts, &detail::RecordPart::is_local)),
      parts_(std::make_shared<const std::vector<detail::RecordPart>>(std::move(parts))) {}

PENSTOCK_INLINE void RecordFile::read_into(std::uint64_t index, std::span<std::byte> target) const {
  const detail::RecordPart& part = part_of(index);
  if (target.size() != record_bytes_)
    throw std::invalid_argument("RecordFile::read_into: a target of " +
                                std::to_string(target.size()) + " bytes for a record of " +
                                std::to_string(record_bytes_));
  try {
    part.read(part.place_of(index, record_bytes_), target);
  } catch (const std::runtime_error& error) {
    part.fail_record(index, error.what());
  }
}

PENSTOCK_INLINE void RecordFile::read_many(std::span<const std::uint64_t> indices,
                                           std::span<std::byte> target) const {
  check_many("RecordFile::read_many", indices, target);
  if (!is_local_ && indices.size() > 1) will_need(indices, std::chrono::steady_clock::now());
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

PENSTOCK_INLINE void RecordFile::read_many(std::span<const std::uint64_t> indices, ReadQueue& queue,
                                           EachSample each) const {
  const auto place_of = [&](std::size_t k) -> detail::SamplePlace {
    const detail::RecordPart& part = part_of(indices[k]);
    return {part.file, part.place_of(indices[k], record_bytes_), record_bytes_};
  };
  const auto alone = [&](std::size_t k) { each(k, read(indices[k], queue.engine().scratch())); };
  detail::read_queued(queue, size_ * record_bytes_, indices.size(), place_of, each, alone);
}

PENSTOCK_INLINE void RecordFile::read_many_into(std::span<const std::uint64_t> indices,
                                                std::span<std::byte> target,
                                                ReadQueue& queue) const {
  check_many("RecordFile::read_many_into", indices, target);
  const auto row = [&](std::size_t k) { return target.subspan(k * record_bytes_, record_bytes_); };
  const auto place_of = [&](std::size_t k) -> detail::SamplePlace {
    const detail::RecordPart& part = part_of(indices[k]);
    return {part.file, part.place_of(indices[k], record_bytes_), record_bytes_, row(k).data()};
  };
  const auto arrived = [](std::size_t, std::span<const std::byte>) {};
  const auto alone = [&](std::size_t k) { read_into(indices[k], row(k)); };
  detail::read_queued(queue, size_ * record_bytes_, indices.size(), place_of, arrived, alone);
}

PENSTOCK_INLINE void RecordFile::read_sorted(std::span<const detail::WantedRecord> wanted) const {
  for (std::size_t i = 0, next = 0; i < wanted.size(); i = next) {
    const detail::RecordPart& part = part_of(wanted[i].index);
    const std::uint64_t end = part.end();
    detail::GatheredRead together(part.place_of(wanted[i].index, record_bytes_));
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
  return part.file.name() + ", record " + std::to_string(index - part.first);
}

PENSTOCK_INLINE FilePlace RecordFile::place(std::uint64_t index) const {
  const detail::RecordPart& part = part_of(index);
  return {part.file, {part.place_of(index, record_bytes_), record_bytes_}};
}

PENSTOCK_INLINE void RecordFile::will_need(
    std::span<const std::uint64_t> indices,
    std::chrono::steady_clock::time_point due) const noexcept {
  detail::NeededRanges::ask(
      indices, size_, due, [&](std::uint64_t index, detail::NeededRanges& ranges) {
        const detail::RecordPart& part = part_of(index);
        ranges.add(part.file, {part.place_of(index, record_bytes_), record_bytes_});
      });
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
