// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockOrder: a shuffled order in which runs of samples lie together in storage. It is computed,
// not stored.
//
//   penstock::detail::BlockOrder order(samples, block, window, {begin, count}, key);
//   order.put(first, out);                         // the samples of this rank, from its first-th on
//
// Method. The data set is cut into blocks of `block` samples that lie together. The blocks are put
// in a random order, which gives a list of all samples. A rank gets the part `share` of that list,
// so ranks read different blocks; a block on the border of two shares is cut in two. The blocks of
// a share are divided into windows of at most `window` blocks. The sizes of the windows differ by
// at most one block; otherwise the last window could be a single block, and an epoch would end with
// samples that lie together. Within a window the samples are shuffled.
//
// The last block may be shorter. Its place is chosen separately at random, and a Permutation orders
// the others. Thus the place from which positions shift is known without an inverse permutation.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/order/permutation.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The `count` positions of a list from `begin` on.
struct Share {
  std::uint64_t begin = 0, count = 0;
};

class BlockOrder {
 public:
  /// Requires 1 <= block <= samples <= Permutation::max_size, 1 <= window, 1 <= share.count, and a
  /// share within the list.
  BlockOrder(std::uint64_t samples, std::uint64_t block, std::uint64_t window, Share share,
             std::uint64_t key) noexcept
      : block_(block),
        last_((samples - 1) / block),
        missing_((last_ + 1) * block - samples),
        last_place_(mix64(key) % (last_ + 1)),
        share_(share),
        key_(mix64(key + golden_ratio)),
        others_(std::max<std::uint64_t>(1, last_), mix64(key + 2 * golden_ratio)),
        first_block_(block_at(share.begin)) {
    const std::uint64_t blocks = block_at(share.begin + share.count - 1) - first_block_ + 1;
    const std::uint64_t windows = (blocks - 1) / window + 1;
    window_ = blocks / windows;
    larger_ = blocks % windows;
  }

  /// Fills `out` with the samples at the places `first`, `first` + 1, ... of the share.
  void put(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    std::uint64_t place = share_.begin + first;
    while (!out.empty()) {
      const Share window = window_at(place);
      const std::uint64_t left = window.begin + window.count - place;
      const auto part =
          out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), left)));
      put_window(window, place, part);
      place += part.size();
      out = out.subspan(part.size());
    }
  }

 private:
  /// Returns the block, counted in the random order, that contains position `place` of the list.
  std::uint64_t block_at(std::uint64_t place) const noexcept {
    const std::uint64_t before = last_place_ * block_;
    if (place < before) return place / block_;
    return std::max(last_place_, (place + missing_) / block_);
  }
  /// Returns the position in the list at which that block begins.
  std::uint64_t begin_of(std::uint64_t block) const noexcept {
    return block * block_ - (block > last_place_ ? missing_ : 0);
  }

  /// Returns the window of the share that contains `place`. The first `larger_` windows have one
  /// block more than the others.
  Share window_at(std::uint64_t place) const noexcept {
    const std::uint64_t block = block_at(place) - first_block_, more = larger_ * (window_ + 1);
    const std::uint64_t window =
        block < more ? block / (window_ + 1) : larger_ + (block - more) / window_;
    const std::uint64_t first = window * window_ + std::min(window, larger_);
    const std::uint64_t size = window_ + (window < larger_ ? 1 : 0);
    const std::uint64_t begin = std::max(share_.begin, begin_of(first_block_ + first));
    const std::uint64_t end =
        std::min(share_.begin + share_.count, begin_of(first_block_ + first + size));
    return {begin, end - begin};
  }

  void put_window(Share window, std::uint64_t place, std::span<std::uint64_t> out) const noexcept {
    std::uint64_t next = place - window.begin;
    for (std::uint64_t& value : out) value = next++;
    Permutation(window.count, mix64(key_ + window.begin)).apply(out);
    for (std::uint64_t& value : out) value += window.begin;
    for (; !out.empty(); out = out.subspan(std::min(out.size(), chunk)))
      to_samples(out.first(std::min(out.size(), chunk)));
  }

  /// Replaces positions of the list by the samples at these positions.
  void to_samples(std::span<std::uint64_t> places) const noexcept {
    std::array<std::uint64_t, chunk> blocks{};
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::uint64_t block = block_at(places[i]);
      places[i] -= begin_of(block);  // now the position within its block
      blocks[i] = block < last_place_ ? block : block - 1;
      if (block != last_place_) continue;
      blocks[i] = 0;
      places[i] += last_ * block_ + is_sample;
    }
    others_.apply(std::span(blocks).first(places.size()));
    for (std::size_t i = 0; i < places.size(); ++i)
      places[i] = places[i] >= is_sample ? places[i] - is_sample : places[i] + blocks[i] * block_;
  }

  static constexpr std::size_t chunk = 64;
  static constexpr std::uint64_t is_sample = std::uint64_t{1}
                                             << 63;  // a flag; larger than every sample

  std::uint64_t block_;
  std::uint64_t last_;        // the number of the last block
  std::uint64_t missing_;     // how many samples it has less than the others
  std::uint64_t last_place_;  // its place among the blocks in random order
  Share share_;
  std::uint64_t key_;  // the key of the windows
  Permutation others_;
  std::uint64_t first_block_;        // the first block of the share, in the random order
  std::uint64_t window_, larger_{};  // blocks in a window; number of windows with one more
};

}  // namespace penstock::detail
