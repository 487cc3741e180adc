// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <penstock/detail/storage/mapped_file.hpp>
#include <penstock/detail/storage/record_part.hpp>
#include <penstock/mapped_records.hpp>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// Calls `call(bytes)`, for sizes that rows of tables often have with a constant: to copy a row is
/// an instruction or two then.
template <class Call>
void with_row_bytes(std::size_t bytes, const Call& call) {
  switch (bytes) {
    case 4:
      return call(std::integral_constant<std::size_t, 4>());
    case 8:
      return call(std::integral_constant<std::size_t, 8>());
    case 16:
      return call(std::integral_constant<std::size_t, 16>());
    case 32:
      return call(std::integral_constant<std::size_t, 32>());
    case 64:
      return call(std::integral_constant<std::size_t, 64>());
    default:
      return call(bytes);
  }
}

}  // namespace detail

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
  const auto copy = [&](auto bytes, const auto& address) {
    constexpr std::size_t kAhead = 32;  // Records that the processor fetches meanwhile.
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (indices.size() - i > kAhead) __builtin_prefetch(address(indices[i + kAhead]));
      std::memcpy(target.data() + i * bytes, address(indices[i]), bytes);
    }
  };
  detail::with_row_bytes(record_bytes(), [&](auto bytes) {
    if (mappings_->size() > 1) return copy(bytes, [&](auto index) { return address_of(index); });
    const std::byte* const first = address_of(0);
    copy(bytes, [&](std::uint64_t index) { return first + index * bytes; });
  });
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
