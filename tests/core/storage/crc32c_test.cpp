// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <penstock/detail/storage/crc32c.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Bit by bit, as the standard defines it.
std::uint32_t defined(std::span<const std::byte> bytes) {
  std::uint32_t sum = ~0u;
  for (const std::byte byte : bytes) {
    sum ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~sum;
}

TEST_CASE("crc32c has the values of RFC 3720, appendix B.4", "[crc32c]") {
  std::vector<std::byte> bytes(32);
  CHECK(crc32c(bytes) == 0x8a9136aa);
  for (std::byte& byte : bytes) byte = std::byte{0xff};
  CHECK(crc32c(bytes) == 0x62a8ab43);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  CHECK(crc32c(bytes) == 0x46dd794e);
  CHECK(crc32c(bytes_of("123456789")) == 0xe3069283);
  CHECK(crc32c({}) == 0);
}

TEST_CASE("crc32c is the same by tables, by the instruction, and in pieces", "[crc32c]") {
  std::vector<std::byte> all(20'000);
  std::uint32_t next = 1;
  for (std::byte& byte : all)
    byte = static_cast<std::byte>((next = next * 1664525 + 1013904223) >> 24);
  for (const std::size_t size :
       {0u, 1u, 7u, 8u, 9u, 100u, 3071u, 3072u, 3073u, 6144u, 9999u, 19'990u})
    for (const std::size_t begin : {0u, 1u, 3u, 8u}) {
      const auto bytes = std::span<const std::byte>(all).subspan(begin, size);
      const std::uint32_t expected = defined(bytes);
      CAPTURE(size, begin);
      CHECK(crc32c(bytes) == expected);
      CHECK(~crc32c_by_tables(~0u, bytes) == expected);
      CHECK(crc32c(bytes.subspan(size / 3), crc32c(bytes.first(size / 3))) == expected);
    }
}

}  // namespace
}  // namespace penstock::detail
