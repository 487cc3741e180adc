// SPDX-License-Identifier: Apache-2.0
#pragma once

// NameArena: millions of names in one block of memory, at a cost of 8 bytes for each.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>
#include <span>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class NameArena {
 public:
  void add(std::string_view name) {
    bytes_.insert(bytes_.end(), name.begin(), name.end());
    ends_.push_back(bytes_.size());
  }
  std::size_t size() const noexcept { return ends_.size(); }
  std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }
  /// The names end to end, and where each ends; to write them into a file, or, behind resize(), to
  /// read them from one. is_whole(): the ends ascend to the end of the bytes.
  std::span<char> bytes() noexcept { return bytes_; }
  std::span<std::uint64_t> ends() noexcept { return ends_; }
  void resize(std::size_t names, std::size_t bytes) {
    ends_.resize(names);
    bytes_.resize(bytes);
  }
  bool is_whole() const {
    return std::is_sorted(ends_.begin(), ends_.end()) &&
           bytes_.size() == (ends_.empty() ? 0 : ends_.back());
  }

  /// Gives back what was allocated for names that did not come.
  void shrink_to_fit() {
    bytes_.shrink_to_fit();
    ends_.shrink_to_fit();
  }

 private:
  std::vector<char> bytes_;
  std::vector<std::uint64_t> ends_;  // of each name in bytes_
};

}  // namespace penstock::detail
