// SPDX-License-Identifier: Apache-2.0
#pragma once

// crc32c(): the checksum of Castagnoli, Braeuer and Herrmann ("Optimization of Cyclic
// Redundancy-Check Codes with 24 and 32 Parity Bits", IEEE Transactions on Communications, 1993) as
// iSCSI has it (RFC 3720): polynomial 0x1EDC6F41, reflected, begun and ended with an inversion.
//
// By the instruction of SSE 4.2 where the processor has it. Three parts of the bytes are summed at
// a time, because the instruction takes three cycles and can be issued in each; the sums are put
// together by a table of what a sum becomes behind a part of zeros (Gopal and others: "Fast CRC
// Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011). Elsewhere by eight
// tables (Kounavis, Berry: "A Systematic Approach to Building High Performance, Software-based, CRC
// Generators", ISCC 2005).

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/version.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

static_assert(std::endian::native == std::endian::little);

using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

/// Table k: what a byte becomes behind k bytes of zeros.
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82F63B78u : 0u);
    tables[0][byte] = sum;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
  return tables;
}
inline constexpr CrcTables crc_tables = make_crc_tables();

inline std::uint64_t crc_word(const std::byte* bytes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

/// Without the inversions.
inline std::uint32_t crc32c_by_tables(std::uint32_t sum,
                                      std::span<const std::byte> bytes) noexcept {
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    const std::uint64_t word = crc_word(bytes.data()) ^ sum;
    sum = 0;
    for (std::size_t k = 0; k < 8; ++k) sum ^= crc_tables[7 - k][(word >> (8 * k)) & 255];
  }
  for (const std::byte byte : bytes)
    sum = (sum >> 8) ^ crc_tables[0][(sum ^ static_cast<std::uint32_t>(byte)) & 255];
  return sum;
}

#ifdef __x86_64__
inline constexpr std::size_t crc_part = 1024;  // bytes

/// What each byte of a sum becomes behind crc_part bytes of zeros.
using CrcShift = std::array<std::array<std::uint32_t, 256>, 4>;

inline CrcShift make_crc_shift() {
  CrcShift shift{};
  const std::array<std::byte, crc_part> zeros{};
  for (std::uint32_t k = 0; k < 4; ++k)
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      shift[k][byte] = crc32c_by_tables(byte << (8 * k), zeros);
  return shift;
}

inline std::uint64_t crc_step(std::uint64_t sum, const std::byte* bytes) noexcept {
  asm("crc32q %1, %0" : "+r"(sum) : "rm"(crc_word(bytes)));  // builds without -msse4.2
  return sum;
}

inline std::uint32_t crc32c_by_instruction(std::uint32_t begin,
                                           std::span<const std::byte> bytes) noexcept {
  static const CrcShift shift = make_crc_shift();
  const auto behind_a_part = [](std::uint64_t sum) {
    return shift[0][sum & 255] ^ shift[1][(sum >> 8) & 255] ^ shift[2][(sum >> 16) & 255] ^
           shift[3][(sum >> 24) & 255];
  };
  std::uint64_t sum = begin;
  for (; bytes.size() >= 3 * crc_part; bytes = bytes.subspan(3 * crc_part)) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < crc_part; i += 8) {
      sum = crc_step(sum, bytes.data() + i);
      second = crc_step(second, bytes.data() + crc_part + i);
      third = crc_step(third, bytes.data() + 2 * crc_part + i);
    }
    sum = behind_a_part(behind_a_part(sum) ^ second) ^ third;
  }
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) sum = crc_step(sum, bytes.data());
  return crc32c_by_tables(static_cast<std::uint32_t>(sum), bytes);
}
#endif

/// The checksum of `bytes`, or, with `before`, of what `before` is the checksum of and `bytes`
/// behind it.
inline std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0) noexcept {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~crc32c_by_instruction(~before, bytes);
#endif
  return ~crc32c_by_tables(~before, bytes);
}

}  // namespace penstock::detail
