// SPDX-License-Identifier: Apache-2.0
#pragma once

// UsualSize: how much room nearly all objects of a folder need.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::remote {

/// One thread uses it at a time.
class UsualSize {
 public:
  void add(std::uint64_t bytes) noexcept {
    const auto size_class = static_cast<std::size_t>(
        std::bit_width((std::max<std::uint64_t>(bytes, 1) - 1) / kSmallest));
    ++counts_[std::min(counts_.size() - 1, size_class)];
    if (++count_ < kMany) return;
    count_ = 0;
    for (std::uint32_t& count : counts_) count_ += count /= 2;
  }

  /// 64 KiB to 8 MiB, a power of two, in which 95 % of the objects have fitted lately, or 8 MiB; as
  /// long as there were fewer than 20 of them, 256 KiB.
  std::size_t room() const noexcept {
    if (count_ < kEnough) return 4 * kSmallest;
    std::uint32_t fitted = 0;
    std::size_t size_class = 0;
    for (; size_class + 1 < counts_.size(); ++size_class) {
      fitted += counts_[size_class];
      if (20 * fitted >= 19 * count_) break;
    }
    return kSmallest << size_class;
  }

 private:
  static constexpr std::size_t kSmallest = std::size_t{64} << 10;
  static constexpr std::uint32_t kEnough = 20, kMany = 2048;

  std::array<std::uint32_t, 8> counts_{};  // by size class; the last has all that are larger
  std::uint32_t count_ = 0;
};

}  // namespace penstock::remote
