// SPDX-License-Identifier: Apache-2.0
#pragma once

// The file of a Subset: a header, and the numbers of the samples.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/version.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

static_assert(std::endian::native == std::endian::little);  // Numbers are written as they lie.

/// The numbers follow it, `number_bytes` each. Checksums are CRC-32C.
struct SubsetHeader {
  std::array<char, 8> magic{'P', 'N', 'S', 'T', 'S', 'U', 'B', 'S'};
  std::uint32_t version = 1;
  std::uint32_t number_bytes = 4;
  std::uint64_t samples = 0;  // of the data set
  std::uint64_t size = 0;     // of the subset
  std::uint32_t numbers_checksum = 0;
  std::uint32_t checksum = 0;  // of the header before it
};
static_assert(sizeof(SubsetHeader) == 40);

inline std::uint32_t checksum_of(const SubsetHeader& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(SubsetHeader, checksum)));
}

}  // namespace penstock::detail
