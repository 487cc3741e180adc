// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bytes of a PackedFile, as docs/packed-file.md describes them:
//
//   PackHeader, note            the note padded with zeros to a multiple of 8 bytes
//   for each record: PackFrame, name, padding, bytes, padding
//   PackEntry for each record   the index
//   u64 for each record         end of its name among the names; only with kPackHasNames
//   names                       end to end
//
// All numbers are little-endian, and all checksums CRC-32C.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/version.hpp>
#include <span>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI::detail {

static_assert(std::endian::native ==
              std::endian::little);  // Structs are read as they lie in the file.

inline constexpr std::array<char, 8> kPackMagic{'P', 'N', 'S', 'T', 'P', 'A', 'C', 'K'};
inline constexpr std::array<char, 4> kFrameMagic{'P', 'R', 'E', 'C'};
inline constexpr std::uint32_t kPackVersion = 1;
inline constexpr std::uint32_t kPackHasNames = 1;  // a flag
inline constexpr std::uint32_t kMostNoteBytes = 16u << 20u;
inline constexpr std::uint32_t kMostNameBytes = 64u << 10u;

/// Its size, magic, version and checksum keep their places in every version.
struct PackHeader {
  std::array<char, 8> magic = kPackMagic;
  std::uint32_t version = kPackVersion;
  std::uint32_t flags = 0;
  std::uint64_t records = 0;
  std::uint64_t index = 0;  // where it begins; 0: the file is not finished
  std::uint64_t name_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint32_t index_checksum = 0;  // of everything from `index` on
  std::uint32_t note_checksum = 0;
  std::uint32_t note_bytes = 0;
  std::uint32_t checksum = 0;  // of the header before it
};

struct PackFrame {
  std::array<char, 4> magic = kFrameMagic;
  std::uint32_t checksum = 0;  // of the frame behind it, and of the name
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint32_t bytes_checksum = 0;
  std::int32_t label = -1;
  std::uint32_t name_bytes = 0;
  std::uint32_t zero = 0;
};

struct PackEntry {
  std::uint64_t offset = 0;  // of the bytes, not of the frame
  std::uint64_t bytes = 0;
  std::uint32_t bytes_checksum = 0;
  std::int32_t label = -1;
};

static_assert(sizeof(PackHeader) == 64 && sizeof(PackFrame) == 40 && sizeof(PackEntry) == 24);

template <class T>
requires std::is_trivially_copyable_v<T> std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// The next multiple of 8. `size` is at most 2^64 - 8.
constexpr std::uint64_t padded(std::uint64_t size) noexcept {
  return (size + 7) & ~std::uint64_t{7};
}

inline std::uint32_t checksum_of(const PackHeader& header) noexcept {
  return crc32c(bytes_of(header).first(offsetof(PackHeader, checksum)));
}

inline std::uint32_t checksum_of(const PackFrame& frame, std::span<const std::byte> name) noexcept {
  return crc32c(name, crc32c(bytes_of(frame).subspan(offsetof(PackFrame, number))));
}

}  // namespace penstock::detail
