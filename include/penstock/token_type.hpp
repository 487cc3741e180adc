// SPDX-License-Identifier: Apache-2.0
#pragma once

// TokenType and TokenRange: how files store tokens, and some of them.

#include <cstdint>

namespace penstock {

/// How a file stores a token, little-endian. The numbers are those of Megatron's .idx files, where
/// it has one.
enum class TokenType : std::uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  uint16 = 8,
  uint32 = 100,
};

/// Some tokens that lie together.
struct TokenRange {
  std::uint64_t begin = 0;   ///< number of the first
  std::uint64_t length = 0;  ///< how many
  bool operator==(const TokenRange&) const = default;
};

}  // namespace penstock
