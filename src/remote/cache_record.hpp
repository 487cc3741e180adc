// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the index of a cache is made of: cells of 64 bytes, each with its checksum. The first is the
// header; each other one says what a slot has from then on.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/version.hpp>
#include <span>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::remote {

/// One version of one object: 128 bits of the SHA-256 of its URL, ETag and size.
using ObjectVersion = std::array<std::uint64_t, 2>;

/// nullopt: versions cannot be told apart, since the ETag is missing or weak.
std::optional<ObjectVersion> object_version(std::string_view url, std::string_view etag,
                                            std::uint64_t size);
/// Of an object whose version is not known.
ObjectVersion object_id(std::string_view url);

/// A range of an object.
struct CacheKey {
  ObjectVersion version{};
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;

  friend bool operator==(const CacheKey&, const CacheKey&) = default;
};

/// The cells of an index are little-endian, and their checksum begins with their number, so that a
/// cell at another place is wrong.
using CacheCell = std::array<std::byte, 64>;

struct CacheHeader {
  std::uint64_t slot_bytes = 0, slots = 0;

  friend bool operator==(const CacheHeader&, const CacheHeader&) = default;
};

/// From this record on, a slot has a range; or nothing, where `key.bytes` is 0.
struct CacheRecord {
  CacheKey key;
  std::uint32_t slot = 0;
  std::uint32_t checksum = 0;  ///< CRC32C of the range's bytes

  friend bool operator==(const CacheRecord&, const CacheRecord&) = default;
};

CacheCell to_cell(const CacheHeader& header) noexcept;
CacheCell to_cell(const CacheRecord& record, std::uint64_t number) noexcept;
/// nullopt: it is damaged, or of another version of penstock.
std::optional<CacheHeader> header_of(const CacheCell& cell) noexcept;
/// The cell with this number. nullopt: it is damaged, or cannot be of a cache with this header.
std::optional<CacheRecord> record_of(const CacheCell& cell, std::uint64_t number,
                                     const CacheHeader& header) noexcept;

}  // namespace penstock::remote
