// SPDX-License-Identifier: Apache-2.0
#pragma once

// A shard is: u32 samples; u32 for each sample, where it begins, and one where the last ends; the
// configuration as JSON; the samples. A sample is: u32 for each column of no fixed size, the bytes
// of its field; the fields.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/storage/known_bytes.hpp>
#include <penstock/detail/storage/mds_index.hpp>
#include <penstock/detail/storage/needed_ranges.hpp>
#include <penstock/detail/storage/number_at.hpp>
#include <penstock/detail/storage/store.hpp>
#include <penstock/detail/storage/store_file.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/mds_shards.hpp>
#include <stdexcept>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

struct MdsShard : StoreFile {
  /// Reads where the samples begin. Throws StoreError.
  MdsShard(const File& open_file, const MdsIndexShard& said, std::uint64_t first_sample)
      : StoreFile("MdsShards", open_file), first(first_sample) {
    const std::string in_index = ", and index.json says ";
    if (bytes != said.bytes)
      fail("the file has " + std::to_string(bytes) + " bytes" + in_index +
           std::to_string(said.bytes) + ": it was cut, or is of another data set");
    if (said.samples == 0 || said.samples > bytes / 4)
      fail(std::to_string(bytes) + " bytes" + in_index + std::to_string(said.samples) + " samples");
    const std::uint64_t size = 4 * (said.samples + 2);
    if (size > bytes || size > usable_memory() / 2)
      fail("the places of " + std::to_string(said.samples) + " samples take " +
           std::to_string(size) + " bytes, and the file has " + std::to_string(bytes));
    begins.resize(static_cast<std::size_t>(said.samples + 1));
    std::array<std::byte, 4> count;
    read_or_fail(0, count);
    if (number_at<std::uint32_t>(count, 0) != said.samples)
      fail("the file has " + std::to_string(number_at<std::uint32_t>(count, 0)) + " samples" +
           in_index + std::to_string(said.samples));
    read_or_fail(4, std::as_writable_bytes(std::span(begins)));
    std::uint64_t before = size;
    for (std::size_t i = 0; i < begins.size(); ++i) {
      if (begins[i] < before)
        fail("sample " + std::to_string(i) + " begins at byte " + std::to_string(begins[i]) +
             ", before the end of what is before it: the file is damaged");
      before = begins[i];
    }
    if (before != bytes)
      fail("the last sample ends at byte " + std::to_string(before) + " of " +
           std::to_string(bytes) + ": the file is damaged");
  }

  std::uint64_t first;                // number of its first sample
  std::vector<std::uint32_t> begins;  // of the samples, and the end of the last one
};

struct MdsSet {
  /// Bytes of the sizes before the fields.
  std::size_t head() const {
    return 4 * static_cast<std::size_t>(std::ranges::count(columns, 0u, &MdsColumn::bytes));
  }

  std::vector<MdsColumn> columns;
  std::vector<MdsShard> shards;
  std::uint64_t samples = 0;
};

/// Calls `use(column, begin, bytes)` with each field; returns where the last one ends. The sample
/// must have head() bytes.
template <class Use>
std::uint64_t for_each_field(const MdsSet& set, std::span<const std::byte> sample, const Use& use) {
  std::uint64_t begin = set.head();
  std::size_t size = 0;  // where the next size is
  for (std::size_t column = 0; column < set.columns.size(); ++column) {
    std::uint64_t bytes = set.columns[column].bytes;
    if (bytes == 0) {
      bytes = number_at<std::uint32_t>(sample, size);
      size += 4;
    }
    use(column, begin, bytes);
    begin += bytes;
  }
  return begin;
}

/// `index_file`, for messages: where the text is from.
inline std::shared_ptr<const MdsSet> mds_set(const std::filesystem::path& index_file,
                                             std::string_view index,
                                             const std::function<File(const std::string&)>& open) {
  auto set = std::make_shared<MdsSet>();
  std::vector<MdsIndexShard> shards;
  try {
    shards = read_mds_index(index);
  } catch (const std::runtime_error& error) {
    throw StoreError("MdsShards", index_file, error.what());
  }
  set->shards.reserve(shards.size());
  for (const MdsIndexShard& shard : shards) {
    try {
      set->shards.emplace_back(open(shard.file), shard, set->samples);
    } catch (const StoreError& error) {
      if (shard.compression.empty()) throw;
      throw StoreError("MdsShards", error.file(),
                       std::string("it is compressed (") + escaped(shard.compression) +
                           "), and its raw shard is not there: decompress it, or write it without "
                           "compression: " +
                           error.what());
    }
    set->samples += shard.samples;
  }
  set->columns = std::move(shards.front().columns);
  return set;
}

inline std::string text_of(const File& open_file) {
  const StoreFile file("MdsShards", open_file);
  if (file.bytes > usable_memory() / 2)
    file.fail("its " + std::to_string(file.bytes) + " bytes are more than half of the memory");
  std::string text(static_cast<std::size_t>(file.bytes), '\0');
  file.read_or_fail(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace detail

/// Where a sample lies.
struct MdsShards::Place {
  [[noreturn]] void fail(std::uint64_t index, const std::string& why) const {
    shard.fail("sample " + std::to_string(index - shard.first) + ", at byte " +
                   std::to_string(begin) + " (of all shards: " + std::to_string(index) +
                   ") is lost: " + why,
               index);
  }

  const detail::MdsShard& shard;
  std::uint64_t begin, bytes;
};

PENSTOCK_INLINE MdsShards::MdsShards(const std::filesystem::path& folder)
    : set_(detail::mds_set(
          folder / "index.json",
          detail::text_of(detail::opened("MdsShards", folder / "index.json")),
          [&](const std::string& file) { return detail::opened("MdsShards", folder / file); })) {}

PENSTOCK_INLINE MdsShards::MdsShards(std::string_view index,
                                     const std::function<File(const std::string&)>& open) {
  if (!open) throw std::invalid_argument("MdsShards: there is no function that opens shards");
  set_ = detail::mds_set("index.json", index, open);
}

PENSTOCK_INLINE MdsShards::Place MdsShards::place_of(std::uint64_t index) const {
  detail::require_index(index, size(), "MdsShards: there is no sample ");
  const auto after = std::ranges::upper_bound(set_->shards, index, {}, &detail::MdsShard::first);
  const detail::MdsShard& shard = *(after - 1);
  const auto number = static_cast<std::size_t>(index - shard.first);
  const std::uint64_t begin = shard.begins[number];
  return {shard, begin, shard.begins[number + 1] - begin};
}

PENSTOCK_INLINE std::uint64_t MdsShards::size() const noexcept {
  return set_->samples;
}

PENSTOCK_INLINE std::span<const MdsColumn> MdsShards::columns() const noexcept {
  return set_->columns;
}

PENSTOCK_INLINE std::size_t MdsShards::column(std::string_view name) const {
  std::string names;
  for (std::size_t i = 0; i < set_->columns.size(); ++i) {
    if (set_->columns[i].name == name) return i;
    names += (i == 0 ? "" : ", ") + detail::escaped(set_->columns[i].name);
  }
  throw std::invalid_argument("MdsShards: there is no column " + detail::escaped(name) + ", but " +
                              names);
}

PENSTOCK_INLINE std::span<const std::byte> MdsShards::read(std::uint64_t index,
                                                           std::vector<std::byte>& scratch) const {
  const Place place = place_of(index);
  try {
    const std::span<const std::byte> sample =
        place.shard.read(place.begin, detail::room_in(scratch, place.bytes));
    const bool has_head = sample.size() >= set_->head();
    const std::uint64_t end =
        has_head ? detail::for_each_field(*set_, sample, [](auto...) {}) : set_->head();
    if (end == sample.size()) return sample;
    throw std::runtime_error("its fields take " + std::to_string(end) + " bytes, and it has " +
                             std::to_string(sample.size()));
  } catch (const std::runtime_error& error) {
    place.fail(index, error.what());
  }
}

PENSTOCK_INLINE std::span<const std::byte> MdsShards::field(std::span<const std::byte> sample,
                                                            std::size_t column) const {
  if (column >= set_->columns.size() || sample.size() < set_->head())
    throw std::out_of_range("MdsShards::field: column " + std::to_string(column) + " of " +
                            std::to_string(set_->columns.size()) + ", in a sample of " +
                            std::to_string(sample.size()) + " bytes");
  std::span<const std::byte> found;
  detail::for_each_field(
      *set_, sample, [&](std::size_t number, std::uint64_t begin, std::uint64_t bytes) {
        if (number == column && begin <= sample.size() && bytes <= sample.size() - begin)
          found = sample.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes));
      });
  return found;
}

PENSTOCK_INLINE std::string MdsShards::name(std::uint64_t index) const {
  const Place place = place_of(index);
  return place.shard.file.name() + ", sample " + std::to_string(index - place.shard.first);
}

PENSTOCK_INLINE void MdsShards::will_need(
    std::span<const std::uint64_t> indices,
    std::chrono::steady_clock::time_point due) const noexcept {
  const auto add_place = [this](std::uint64_t index, detail::NeededRanges& ranges) {
    const Place place = place_of(index);
    ranges.add(place.shard.file, {place.begin, place.bytes});
  };
  detail::NeededRanges::ask(indices, size(), due, add_place);
}

}  // namespace penstock
