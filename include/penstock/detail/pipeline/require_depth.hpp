// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace penstock::detail {

/// Throws std::invalid_argument unless least <= depth <= 2^20.
inline void require_depth(const char* option, std::size_t depth, std::size_t least) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  if (depth < least || depth > kMost)
    throw std::invalid_argument(std::string(option) + " is " + std::to_string(depth) +
                                " batches, must be " + std::to_string(least) + " to " +
                                std::to_string(kMost));
}

}  // namespace penstock::detail
