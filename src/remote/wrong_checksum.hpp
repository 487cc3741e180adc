// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <penstock/version.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::remote {

/// What a message says about an object that was received whole.
inline std::string wrong_checksum(std::uint32_t received, std::uint32_t said) {
  std::array<char, 96> text;
  std::snprintf(text.data(), text.size(), "the bytes have the CRC32C %08x, and the store says %08x",
                static_cast<unsigned>(received), static_cast<unsigned>(said));
  return text.data();
}

}  // namespace penstock::remote
