// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <penstock/detail/storage/mapped_file.hpp>
#include <penstock/detail/storage/record_part.hpp>
#include <penstock/mapped_records.hpp>
#include <stdexcept>
#include <utility>

namespace penstock {

PENSTOCK_INLINE MappedRecords::MappedRecords(const RecordFile& records) : records_(records) {
  std::vector<std::shared_ptr<const std::byte>> mappings;
  for (const detail::RecordPart& part : *records_.parts_) {
    try {
      mappings.push_back(detail::mapped(part, "read its records by RecordFile"));
    } catch (const std::runtime_error& error) {
      throw StoreError("MappedRecords", part.path(), error.what());
    }
  }
  mappings_ = std::make_shared<const decltype(mappings)>(std::move(mappings));
}

PENSTOCK_INLINE const std::byte* MappedRecords::address_of(std::uint64_t index) const {
  const detail::RecordPart& part = records_.part_of(index);
  const auto number = static_cast<std::size_t>(&part - records_.parts_->data());
  return (*mappings_)[number].get() + part.place_of(index, record_bytes());
}

PENSTOCK_INLINE std::span<const std::byte> MappedRecords::operator[](std::uint64_t index) const {
  return {address_of(index), record_bytes()};
}

PENSTOCK_INLINE std::span<const std::byte> MappedRecords::read(std::uint64_t index,
                                                               std::vector<std::byte>&) const {
  return (*this)[index];
}

PENSTOCK_INLINE void MappedRecords::read_many(std::span<const std::uint64_t> indices,
                                              std::span<std::byte> target) const {
  records_.check_many("MappedRecords::read_many", indices, target);
  constexpr std::size_t kAhead = 16;  // Records that the processor fetches meanwhile.
  const std::size_t bytes = record_bytes();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices.size() - i > kAhead) __builtin_prefetch(address_of(indices[i + kAhead]));
    std::memcpy(target.data() + i * bytes, address_of(indices[i]), bytes);
  }
}

PENSTOCK_INLINE std::string MappedRecords::name(std::uint64_t index) const {
  return records_.name(index);
}

PENSTOCK_INLINE void MappedRecords::will_need(
    std::span<const std::uint64_t> indices,
    std::chrono::steady_clock::time_point due) const noexcept {
  records_.will_need(indices, due);
}

}  // namespace penstock
