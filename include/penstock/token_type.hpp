// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenType and TokenRange: how files store tokens, and some of them.

#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// How a file stores a token, little-endian. The numbers are those of Megatron's .idx files, where
/// it has one.
enum class TokenType : std::uint8_t {
  uint8 = 1,     ///< std::uint8_t
  int8 = 2,      ///< std::int8_t
  int16 = 3,     ///< std::int16_t
  int32 = 4,     ///< std::int32_t
  int64 = 5,     ///< std::int64_t, whose values have to fit into 32 bits
  uint16 = 8,    ///< std::uint16_t
  uint32 = 100,  ///< std::uint32_t, whose values have to fit into std::int32_t
};

/// Some tokens that lie together.
struct TokenRange {
  std::uint64_t begin = 0;   ///< number of the first
  std::uint64_t length = 0;  ///< how many
  bool operator==(const TokenRange&) const = default;
};

}  // namespace penstock
