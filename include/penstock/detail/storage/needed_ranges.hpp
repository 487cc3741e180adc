// SPDX-License-Identifier: Apache-2.0
#pragma once

// NeededRanges: what a store asks its files for ahead: the ranges of many samples in few calls,
// without an allocation.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/file.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

class NeededRanges {
 public:
  using Due = std::chrono::steady_clock::time_point;

  /// Asks for the samples `indices` that are below `size`: of up to 1,024 at a time, each file for
  /// what it has of them, in the order of their numbers; with the last time of the clock, in the
  /// order of `indices`. Neighbours of a file of this machine are one range. Other files may keep
  /// what is read in a cache, and get each range as it will be read. `add_place(index, ranges)`
  /// calls ranges.add().
  template <class AddPlace>
  static void ask(std::span<const std::uint64_t> indices, std::uint64_t size, Due due,
                  const AddPlace& add_place) noexcept {
    std::array<std::uint64_t, 1024> memory;
    NeededRanges ranges(due);
    while (!indices.empty()) {
      const auto some = std::span(memory).first(std::min(indices.size(), memory.size()));
      std::ranges::copy(indices.first(some.size()), some.begin());
      indices = indices.subspan(some.size());
      if (due != Due::max()) std::ranges::sort(some);
      for (const std::uint64_t index : some)
        if (index < size) add_place(index, ranges);
    }
    ranges.pass();
  }

  /// `file` has to outlive the call of ask().
  void add(const File& file, FileRange range) noexcept {
    if (range.bytes == 0) return;
    if (&file != file_) {
      pass();
      file_ = &file;
      is_local_ = file.descriptor() >= 0;
    }
    if (due_ != Due::max() && joins_last(range)) return;
    if (count_ == ranges_.size()) pass();
    ranges_[count_++] = range;
  }

 private:
  /// The system reads pages.
  static constexpr std::uint64_t kMostGap = 4096;

  explicit NeededRanges(Due due) : due_(due) {}

  bool joins_last(FileRange range) noexcept {
    if (count_ == 0) return false;
    FileRange& last = ranges_[count_ - 1];
    const std::uint64_t last_end = last.offset + last.bytes, end = range.offset + range.bytes;
    if (!is_local_) return range.offset == last.offset && range.bytes == last.bytes;
    if (range.offset < last.offset || range.offset > last_end + kMostGap) return false;
    last.bytes = std::max(last_end, end) - last.offset;
    return true;
  }

  void pass() noexcept {
    if (count_ > 0) file_->will_need(std::span(ranges_).first(count_), due_);
    count_ = 0;
  }

  const Due due_;
  const File* file_ = nullptr;  // that the ranges are of
  bool is_local_ = false;       // of this machine
  std::size_t count_ = 0;
  std::array<FileRange, 256> ranges_;  // only the first have values
};

}  // namespace penstock::detail
