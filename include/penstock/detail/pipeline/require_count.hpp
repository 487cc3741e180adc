// SPDX-License-Identifier: Apache-2.0
#pragma once

// What options that count something may be.

#include <cstddef>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Throws std::invalid_argument unless least <= depth <= 2^20.
inline void require_depth(const char* option, std::size_t depth, std::size_t least) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  if (depth < least || depth > kMost)
    throw std::invalid_argument(std::string(option) + " is " + std::to_string(depth) +
                                " batches, must be " + std::to_string(least) + " to " +
                                std::to_string(kMost));
}

/// Throws std::invalid_argument unless 0 <= workers <= 2^16: each has a thread and, for an
/// on_device source, a stream. `zero` says what 0 stands for.
inline void require_workers(const char* option, int workers, const char* zero) {
  constexpr int kMost = 1 << 16;
  if (workers < 0 || workers > kMost)
    throw std::invalid_argument(std::string(option) + " is " + std::to_string(workers) +
                                ", must be 1 to " + std::to_string(kMost) + " (or 0, for " + zero +
                                ")");
}

}  // namespace penstock::detail
