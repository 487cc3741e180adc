// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is done to tokens as files store them, whatever their type: widen() and find_token().

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <penstock/token_type.hpp>
#include <type_traits>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Calls `call(T())` with the type of a token.
template <class Call>
decltype(auto) with_token_type(TokenType type, const Call& call) {
  switch (type) {  // NOLINTNEXTLINE(bugprone-branch-clone): each has another type
    case TokenType::uint8:
      return call(std::uint8_t());
    case TokenType::int8:
      return call(std::int8_t());
    case TokenType::int16:
      return call(std::int16_t());
    case TokenType::int32:
      return call(std::int32_t());
    case TokenType::int64:
      return call(std::int64_t());
    case TokenType::uint16:
      return call(std::uint16_t());
    case TokenType::uint32:
      break;
  }
  return call(std::uint32_t());
}

inline std::size_t size_of(TokenType type) {
  return with_token_type(type, [](auto token) { return sizeof(token); });
}

template <class T>
T token_at(const std::byte* tokens, std::size_t index) noexcept {
  T token;
  std::memcpy(&token, tokens + index * sizeof(T), sizeof(T));
  return token;
}

/// Whether a token can be delivered. `vocabulary`: 0 for any.
template <class T>
bool is_token(T token, std::int32_t vocabulary) noexcept {
  if (vocabulary == 0) return std::in_range<std::int32_t>(token);
  return std::cmp_greater_equal(token, 0) && std::cmp_less(token, vocabulary);
}

/// The block is of a fixed size, so that each loop becomes vector instructions.
inline constexpr std::size_t kTokenBlock = 64;

/// Widens `count` tokens. Returns false if one of them cannot be delivered.
template <class T, bool has_vocabulary>
bool widen(const std::byte* from, std::int32_t* to, std::size_t count,
           [[maybe_unused]] std::int32_t vocabulary) noexcept {
  constexpr bool checked = has_vocabulary || sizeof(T) == 8 || std::is_same_v<T, std::uint32_t>;
  // Its uppermost bit is set once a token cannot be delivered.
  std::uint32_t wrong = 0;
  const auto put = [&](std::size_t i) {
    const T token = token_at<T>(from, i);
    const auto value = static_cast<std::uint32_t>(token);  // NOLINT(bugprone-signed-char-misuse)
    if constexpr (sizeof(T) == 8)
      wrong |= token != static_cast<std::int32_t>(value) ? ~std::uint32_t{0} : 0;
    if constexpr (has_vocabulary)
      wrong |= value | (static_cast<std::uint32_t>(vocabulary - 1) - value);
    else if constexpr (std::is_same_v<T, std::uint32_t>)
      wrong |= value;
    to[i] = static_cast<std::int32_t>(value);
  };
  std::size_t i = 0;
  for (; i + kTokenBlock <= count; i += kTokenBlock)
    for (std::size_t k = 0; k < kTokenBlock; ++k) put(i + k);
  for (; i < count; ++i) put(i);
  return !checked || wrong >> 31 == 0;
}

/// The same for any type. `vocabulary`: 0 for any token.
inline bool widen(TokenType type, const std::byte* from, std::int32_t* to, std::size_t count,
                  std::int32_t vocabulary) noexcept {
  return with_token_type(type, [&](auto token) {
    using T = decltype(token);
    return vocabulary == 0 ? widen<T, false>(from, to, count, 0)
                           : widen<T, true>(from, to, count, vocabulary);
  });
}

/// Calls `found(i)` for each of `count` tokens that is `token`.
template <class T, class Found>
void find_token(const std::byte* tokens, std::size_t count, T token, const Found& found) {
  for (std::size_t i = 0; i < count; i += kTokenBlock) {
    const std::size_t some = std::min(count - i, kTokenBlock);
    if (some == kTokenBlock) {
      T different = 1;  // stays 1 unless a token is there
      for (std::size_t k = 0; k < kTokenBlock; ++k)
        different = static_cast<T>(different & (token_at<T>(tokens, i + k) != token ? 1 : 0));
      if (different != 0) continue;
    }
    for (std::size_t k = i; k < i + some; ++k)
      if (token_at<T>(tokens, k) == token) found(k);
  }
}

}  // namespace penstock::detail
