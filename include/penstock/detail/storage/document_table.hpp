// SPDX-License-Identifier: Apache-2.0
#pragma once

// DocumentTable: where the documents of a TokenFile begin, in 4 bytes for each.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Keeps the lower 32 bits of each beginning, and at which documents the upper 32 bits change.
class DocumentTable {
 public:
  /// Adds a document that begins at token `begin`, which is not before those that were added.
  void add(std::uint64_t begin) {
    const std::uint64_t high = begin >> 32;
    if (turns_.empty() || turns_.back().high != high) turns_.push_back({high, low_.size()});
    low_.push_back(static_cast<std::uint32_t>(begin));
  }

  void reserve(std::uint64_t documents) { low_.reserve(static_cast<std::size_t>(documents)); }
  std::uint64_t size() const noexcept { return low_.size(); }

  /// The first token of `document`, which is below size().
  std::uint64_t begin(std::uint64_t document) const noexcept {
    const auto turn = turns_.size() == 1
                          ? turns_.begin()
                          : std::ranges::upper_bound(turns_, document, {}, &Turn::first) - 1;
    return turn->high << 32 | low_[static_cast<std::size_t>(document)];
  }

  /// The last document that does not begin behind `token`. The first one begins at token 0.
  std::uint64_t of(std::uint64_t token) const noexcept {
    const auto next = std::ranges::upper_bound(turns_, token >> 32, {}, &Turn::high);
    const std::uint64_t end = next == turns_.end() ? size() : next->first;
    const Turn& turn = *(next - 1);
    if (turn.high < token >> 32) return end - 1;
    const auto from = low_.begin() + static_cast<std::ptrdiff_t>(turn.first);
    const auto to = low_.begin() + static_cast<std::ptrdiff_t>(end);
    const auto behind = std::upper_bound(from, to, static_cast<std::uint32_t>(token));
    return static_cast<std::uint64_t>(behind - low_.begin()) - 1;
  }

 private:
  struct Turn {
    std::uint64_t high;   // the upper bits
    std::uint64_t first;  // the first document with them
  };

  std::vector<std::uint32_t> low_;
  std::vector<Turn> turns_;
};

}  // namespace penstock::detail
