// SPDX-License-Identifier: Apache-2.0
#pragma once

// WindowPacker: puts the documents of a window into bins of one length. DocumentBins keeps what is
// in the bins of all windows.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <penstock/version.hpp>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The sequences of all windows. Those of a window are first its bins, then the whole pieces of its
/// long documents. Documents are numbered from the window's first.
struct DocumentBins {
  /// Where those of a window begin in the lists below. There is one more, with the ends.
  struct Window {
    std::uint64_t sequences = 0, bins = 0, members = 0, longs = 0;
  };

  std::vector<Window> windows = std::vector<Window>(1);
  std::vector<std::uint16_t> bins;     // the place of each one's first member among the window's
  std::vector<std::uint16_t> members;  // documents, bin by bin
  std::vector<std::uint16_t> longs;    // documents that are longer than a sequence
  std::vector<std::uint32_t> pieces;   // of each of them: whole pieces of the window before it

  std::uint64_t size() const noexcept { return windows.back().sequences; }

  /// Adds the windows that come behind these.
  void append(const DocumentBins& more) {
    const Window before = windows.back();
    for (std::size_t i = 1; i < more.windows.size(); ++i) {
      const Window& window = more.windows[i];
      windows.push_back({before.sequences + window.sequences, before.bins + window.bins,
                         before.members + window.members, before.longs + window.longs});
    }
    bins.insert(bins.end(), more.bins.begin(), more.bins.end());
    members.insert(members.end(), more.members.begin(), more.members.end());
    longs.insert(longs.end(), more.longs.begin(), more.longs.end());
    pieces.insert(pieces.end(), more.pieces.begin(), more.pieces.end());
  }
};

/// A set of numbers that finds the first one from a number on in O(log n).
class NumberSet {
 public:
  /// Of numbers below `size`.
  explicit NumberSet(std::size_t size) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size, 0);
    } while (size > 1);
  }

  void insert(std::size_t number) noexcept {
    for (auto& level : levels_) {
      level[number / 64] |= std::uint64_t{1} << number % 64;
      number /= 64;
    }
  }
  void erase(std::size_t number) noexcept {
    for (auto& level : levels_) {
      level[number / 64] &= ~(std::uint64_t{1} << number % 64);
      if (level[number / 64] != 0) return;
      number /= 64;
    }
  }
  /// The least number of the set that is not below `number`; npos: there is none.
  std::size_t first_from(std::size_t number) const noexcept {
    for (std::size_t k = 0; k < levels_.size(); ++k) {
      const std::size_t word = number / 64;
      if (word >= levels_[k].size()) return npos;
      const std::uint64_t left = levels_[k][word] >> number % 64;
      if (left == 0) {
        number = word + 1;  // The level above knows which of the words behind this has a number.
        continue;
      }
      number += static_cast<std::size_t>(std::countr_zero(left));
      for (; k > 0; --k)
        number = number * 64 + static_cast<std::size_t>(std::countr_zero(levels_[k - 1][number]));
      return number;
    }
    return npos;
  }

  static constexpr std::size_t npos = ~std::size_t{0};

 private:
  std::vector<std::vector<std::uint64_t>> levels_;  // a bit of a level is a word of the one below
};

class WindowPacker {
 public:
  /// `best_fit`: the longest first, each where the least room is left; else each, in the order of
  /// the files, into the first bin that has room.
  WindowPacker(bool best_fit, std::int64_t length, std::uint32_t window)
      : best_(best_fit),
        length_(static_cast<std::uint32_t>(length)),
        rooms_(best_ ? length_ + std::size_t{1} : 1),
        first_of_(best_ ? length_ + std::size_t{1} : 0),
        next_(window),
        tree_(best_ ? 0 : 2 * std::bit_ceil(std::size_t{window})),
        bin_of_(window),
        room_(window) {
    items_.reserve(window);
  }

  /// Packs documents of these lengths, at most `window`, and adds their sequences to `bins`.
  void pack(std::span<const std::uint64_t> documents, DocumentBins& bins) {
    items_.clear();
    used_ = 0;
    std::uint64_t pieces = 0;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const std::uint64_t whole = documents[i] / length_;
      const auto rest = static_cast<std::uint32_t>(documents[i] % length_);
      if (whole > 0) {
        if (pieces > std::numeric_limits<std::uint32_t>::max())
          throw std::invalid_argument("Packing: a window has more than 2^32 sequences");
        bins.longs.push_back(static_cast<std::uint16_t>(i));
        bins.pieces.push_back(static_cast<std::uint32_t>(pieces));
        pieces += whole;
      }
      if (rest > 0) items_.push_back({rest, static_cast<std::uint32_t>(i)});
    }
    if (best_)
      put_best();
    else
      put_first();
    list_members(bins);
    bins.windows.push_back(
        {bins.size() + used_ + pieces, bins.bins.size(), bins.members.size(), bins.longs.size()});
  }

 private:
  struct Item {
    std::uint32_t length, document;
  };

  /// The longest first, each into the bin with the least room that is enough.
  void put_best() {
    std::ranges::stable_sort(items_, std::ranges::greater(), &Item::length);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const std::uint32_t length = items_[i].length;
      const std::size_t room = rooms_.first_from(length);
      std::uint32_t bin = used_;
      if (room == NumberSet::npos) {
        room_[used_++] = length_;
      } else {
        bin = first_of_[room];
        first_of_[room] = next_[bin];
        if (first_of_[room] == kNone) rooms_.erase(room);
      }
      bin_of_[i] = bin;
      room_[bin] -= length;
      add_room(bin);
    }
    for (std::uint32_t bin = 0; bin < used_; ++bin) rooms_.erase(room_[bin]);
  }

  /// Notes that a bin has room.
  void add_room(std::uint32_t bin) {
    const std::uint32_t room = room_[bin];
    if (room == 0) return;
    const bool is_first = rooms_.first_from(room) != room;
    next_[bin] = is_first ? kNone : first_of_[room];
    first_of_[room] = bin;
    if (is_first) rooms_.insert(room);
  }

  /// In the given order, each into the first bin that has room.
  void put_first() {
    const std::size_t leaves = tree_.size() / 2;
    std::ranges::fill(tree_, length_);  // Bins behind those in use are empty.
    for (std::size_t i = 0; i < items_.size(); ++i) {
      std::size_t node = 1;
      while (node < leaves) node = 2 * node + (tree_[2 * node] >= items_[i].length ? 0 : 1);
      const auto bin = static_cast<std::uint32_t>(node - leaves);
      used_ = std::max(used_, bin + 1);
      bin_of_[i] = bin;
      tree_[node] -= items_[i].length;
      for (node /= 2; node > 0; node /= 2)
        tree_[node] = std::max(tree_[2 * node], tree_[2 * node + 1]);
    }
  }

  /// Lists the items bin by bin, in each in the order of the documents.
  void list_members(DocumentBins& bins) {
    begins_.assign(used_ + std::size_t{1}, 0);
    for (std::size_t i = 0; i < items_.size(); ++i) ++begins_[bin_of_[i] + 1];
    for (std::size_t bin = 0; bin < used_; ++bin) begins_[bin + 1] += begins_[bin];
    for (std::size_t bin = 0; bin < used_; ++bin)
      bins.bins.push_back(static_cast<std::uint16_t>(begins_[bin]));
    const std::size_t first = bins.members.size();
    bins.members.resize(first + items_.size());
    of_document_.resize(next_.size());
    std::ranges::fill(of_document_, kNone);
    for (std::size_t i = 0; i < items_.size(); ++i) of_document_[items_[i].document] = bin_of_[i];
    for (std::size_t document = 0; document < of_document_.size(); ++document)
      if (of_document_[document] != kNone)
        bins.members[first + begins_[of_document_[document]]++] =
            static_cast<std::uint16_t>(document);
  }

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  bool best_;
  std::uint32_t length_, used_ = 0;  // bins
  std::vector<Item> items_;
  NumberSet rooms_;                      // those that bins have
  std::vector<std::uint32_t> first_of_;  // a bin for each of them
  std::vector<std::uint32_t> next_;      // another bin with as much room
  std::vector<std::uint32_t> tree_;      // of rooms: a node has the larger of the two below it
  std::vector<std::uint32_t> bin_of_, room_, begins_, of_document_;
};

}  // namespace penstock::detail
