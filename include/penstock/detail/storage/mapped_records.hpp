// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <penstock/detail/storage/record_part.hpp>
#include <penstock/mapped_records.hpp>
#include <stdexcept>
#include <utility>

namespace penstock {

namespace detail {

/// The first `bytes` bytes of the file, at least 1, as memory that can only be read. The file may
/// be closed afterwards. Throws std::system_error.
inline std::shared_ptr<const std::byte> mapped(int descriptor, std::uint64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) OpenFile::fail("cannot map the file");
  const auto unmap = [data, size](const std::byte*) { ::munmap(data, size); };
  return {static_cast<const std::byte*>(data), unmap};
}

}  // namespace detail

PENSTOCK_INLINE MappedRecords::MappedRecords(const RecordFile& records) : records_(records) {
  std::vector<std::shared_ptr<const std::byte>> mappings;
  for (const detail::RecordPart& part : *records_.parts_) {
    try {
      if (!part.is_local())
        throw std::runtime_error(
            "only a file of this machine can be mapped: read its records by RecordFile");
      const std::uint64_t now = detail::OpenFile::size_of(part.file.descriptor());
      if (now < part.bytes) throw std::runtime_error(detail::shorter_by_now(now, part.bytes));
      mappings.push_back(detail::mapped(part.file.descriptor(), part.bytes));
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
