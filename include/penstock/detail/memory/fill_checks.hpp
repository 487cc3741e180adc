// SPDX-License-Identifier: Apache-2.0
#pragma once

// FillChecks: the checks of PENSTOCK_CHECKS on a batch that a source has filled, on the host or in
// a device slot. They find writes outside of the fields, writes after the last row of the batch,
// and rows that were not written.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <penstock/detail/mix.hpp>
#include <penstock/error.hpp>
#include <penstock/layout.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Pseudo-random bytes, computed from a number and the offset in a block. If 8 of them are
/// unchanged, they were not written, with an error probability of 2^-64.
class Pattern {
 public:
  explicit Pattern(std::uint64_t number) : seed_(mix64(number)) {}

  void fill(std::byte* block, std::size_t bytes) const {
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t word = word_at(at);
      std::memcpy(block + at, &word, std::min(sizeof(word), bytes - at));
    }
  }
  void fill(std::byte* block, std::size_t begin, std::size_t end) const {
    for (; begin != end; ++begin) block[begin] = byte_at(begin);
  }
  /// Returns the first offset in [begin, end) that differs from the pattern, or `end` if none does.
  std::size_t first_other(const std::byte* block, std::size_t begin, std::size_t end) const {
    while (begin < end && block[begin] == byte_at(begin)) ++begin;
    return begin;
  }
  bool is_all(const std::byte* block, std::size_t begin, std::size_t end) const {
    return first_other(block, begin, end) == end;
  }

 private:
  std::uint64_t word_at(std::size_t at) const { return mix64(seed_ + at / sizeof(std::uint64_t)); }
  std::byte byte_at(std::size_t at) const {
    const std::uint64_t word = word_at(at);
    return reinterpret_cast<const std::byte*>(&word)[at % sizeof(word)];
  }

  std::uint64_t seed_;
};

/// The checks of a producer. All its workers share them.
class FillChecks {
 public:
  explicit FillChecks(const BlockLayout& layout) : layout_(layout) {
    for (const auto& field : layout.fields())
      evidence_.emplace_back(is_short(field) ? static_cast<std::size_t>(layout.batch_size()) : 0,
                             std::uint8_t{0});
  }

  /// Fills a block with the pattern before a source gets it. Returns the number for check().
  std::uint64_t blank(std::byte* block) {
    const std::uint64_t number = fills_.fetch_add(1, std::memory_order_relaxed);
    Pattern(number).fill(block, layout_.bytes());
    return number;
  }

  /// Fills one row of the tensors as blank() did, after a source has failed for it. Other workers
  /// may write other rows at the same time.
  void blank_row(std::byte* block, std::int64_t row, std::uint64_t number) const {
    const Pattern pattern(number);
    for (const Field& field : layout_.fields()) {
      if (field.is_ragged()) continue;  // The next attempt gets other values.
      const std::size_t begin = row_at(field, row);
      pattern.fill(block, begin, begin + field.sample_bytes);
    }
  }

  /// Like blank(), for a device slot that the source writes on `stream`. Waits for the stream.
  std::uint64_t blank_slot(std::byte* slot, cudaStream_t stream) {
    std::vector<std::byte> contents(layout_.bytes());
    const std::uint64_t number = blank(contents.data());
    copy(slot, contents.data(), cudaMemcpyHostToDevice, stream);
    return number;
  }

  /// Throws std::logic_error, which names the field and the row, if the source of a batch of
  /// `asked` samples wrote outside of its fields or after its last row, or did not write a row that
  /// is not in `dropped` (ascending). Call it before finish(). A source that resized the batch may
  /// have written all `asked` rows.
  void check(const void* batch, const std::byte* block, std::int64_t asked, std::uint64_t number,
             std::span<const std::int64_t> dropped = {}) {
    const std::int64_t samples = layout_.samples(batch, block);
    const Pattern pattern(number);
    check_guards(batch, block, pattern);
    for (const Field& field : layout_.fields()) {
      if (field.is_ragged()) {
        check_ragged(field, layout_.ragged(field, batch), block, pattern, dropped);
        continue;
      }
      check_rows_behind(field, block, pattern, std::max(asked, samples), samples);
      check_rows(field, block, pattern, samples, dropped);
    }
  }

  /// Like check(), for a device slot. Rows after the last row of the batch are ignored, since they
  /// do no harm there. Waits for `stream`, which the source has made wait for all its work.
  void check_slot(const void* batch, const std::byte* slot, std::uint64_t number,
                  cudaStream_t stream) {
    const std::int64_t samples = layout_.samples(batch, slot);
    std::vector<std::byte> contents(layout_.bytes());
    copy(contents.data(), slot, cudaMemcpyDeviceToHost, stream);
    const Pattern pattern(number);
    check_guards(batch, contents.data(), pattern);
    for (const Field& field : layout_.fields()) {
      if (field.is_ragged())
        check_ragged_slot(field, contents.data(), pattern, samples);
      else
        check_rows(field, contents.data(), pattern, samples, {});
    }
  }

 private:
  using Field = BlockLayout::Field;
  static constexpr std::size_t kSure = sizeof(std::uint64_t);  // this many unchanged bytes are no
                                                               // coincidence

  static bool is_short(const Field& field) {
    return !field.is_ragged() && field.sample_bytes != 0 && field.sample_bytes < kSure;
  }
  static std::size_t row_at(const Field& field, std::int64_t row) {
    return field.offset + static_cast<std::size_t>(row) * field.sample_bytes;
  }
  /// The offset of a value of a ragged field.
  static std::size_t value_at(const Field& field, std::int64_t value) {
    return field.values + static_cast<std::size_t>(value) * field.sample_bytes;
  }

  void copy(void* to, const void* from, cudaMemcpyKind kind, cudaStream_t stream) const {
    detail::check(cudaMemcpyAsync(to, from, layout_.bytes(), kind, stream), "cudaMemcpyAsync",
                  layout_.bytes());
    detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  void check_guards(const void* batch, const std::byte* block, const Pattern& pattern) const {
    const Field* before = nullptr;
    std::size_t guard = 0;  // the beginning of the guard before the next part
    const auto check_guard = [&](std::size_t end, const std::string& after) {
      const std::size_t at = pattern.first_other(block, guard, end);
      if (at == end) return;
      throw std::logic_error(
          "the source wrote outside of its fields: " +
          (before == nullptr
               ? std::to_string(end - at) + " bytes before field " + after
               : std::to_string(at - guard) + " bytes behind the end of field " + before->name));
    };
    layout_.for_each_part(batch, 0, [&](const BlockLayout::Part& part) {
      check_guard(part.offset, part.field.name);
      guard = part.offset + part.bytes;
      before = &part.field;
    });
    check_guard(layout_.bytes(), "");
  }

  void check_rows_behind(const Field& field, const std::byte* block, const Pattern& pattern,
                         std::int64_t first, std::int64_t samples) const {
    const std::size_t end = row_at(field, layout_.batch_size());
    const std::size_t at = pattern.first_other(block, row_at(field, first), end);
    if (at == end) return;
    const std::size_t row = (at - field.offset) / field.sample_bytes;
    throw std::logic_error("the source wrote row " + std::to_string(row) + " of field " +
                           field.name + " in a batch of " + std::to_string(samples) +
                           " samples: rows behind them are not copied; resize() the batch, or "
                           "write only the rows that it has");
  }

  /// Finds rows that were not written. A row of fewer than 8 bytes may have the pattern by chance.
  /// Therefore adjacent rows are counted together, and so is the same row of consecutive batches,
  /// each of which has another pattern.
  void check_rows(const Field& field, const std::byte* block, const Pattern& pattern,
                  std::int64_t samples, std::span<const std::int64_t> dropped) {
    std::int64_t first = 0;  // the first of the present sequence of blank rows
    const auto end_of_blank = [&](std::int64_t row) {
      const std::size_t bytes = static_cast<std::size_t>(row - first) * field.sample_bytes;
      if (bytes >= kSure) throw_unwritten(field, first, row, samples);
      first = row + 1;
    };
    const std::lock_guard lock(mutex_);
    auto& evidence = evidence_[static_cast<std::size_t>(&field - layout_.fields().data())];
    for (std::int64_t row = 0; row < samples; ++row) {
      const bool is_dropped = !dropped.empty() && dropped.front() == row;
      if (is_dropped) dropped = dropped.subspan(1);
      const bool blank = !is_dropped && pattern.is_all(block, row_at(field, row),
                                                       row_at(field, row) + field.sample_bytes);
      if (!blank) end_of_blank(row);
      if (!is_short(field)) continue;
      std::uint8_t& seen = evidence[static_cast<std::size_t>(row)];
      seen = blank ? static_cast<std::uint8_t>(seen + field.sample_bytes) : std::uint8_t{0};
      if (seen < kSure) continue;
      seen = 0;
      throw_unwritten(field, first, row + 1, samples);
    }
    end_of_blank(samples);
  }

  [[noreturn]] static void throw_unwritten(const Field& field, std::int64_t first, std::int64_t end,
                                           std::int64_t samples) {
    const std::string rows = end - first == 1 ? "row " + std::to_string(first) + " of "
                                              : "rows " + std::to_string(first) + " to " +
                                                    std::to_string(end - 1) + " of ";
    throw std::logic_error("the source left " + (end - first == samples ? "" : rows) + "field " +
                           field.name + " unwritten");
  }

  void check_ragged(const Field& field, const RaggedParts& parts, const std::byte* block,
                    const Pattern& pattern, std::span<const std::int64_t> dropped) const {
    const auto offsets = static_cast<std::size_t>(layout_.batch_size() + 1) * sizeof(std::int64_t);
    if (!pattern.is_all(block, field.offset, field.offset + offsets))
      throw std::logic_error("the source wrote the offsets of field " + field.name +
                             ", which are made of what it assigns");
    const std::int64_t used = parts.fill->used;
    if (!pattern.is_all(block, value_at(field, used), value_at(field, field.capacity)))
      throw std::logic_error("the source wrote behind the " + std::to_string(used) +
                             " values that it assigned to field " + field.name);
    for (std::int64_t row = 0; row < parts.rows; ++row) {
      if (!dropped.empty() && dropped.front() == row) {
        dropped = dropped.subspan(1);
        continue;
      }
      if (parts.fill->rows()[row].begin == RaggedFill::unassigned)
        throw std::logic_error("the source did not assign row " + std::to_string(row) +
                               " of field " + field.name + ": assign nothing to an empty row");
      const RaggedRow place = filled_row(parts, row);
      check_values(field, block, pattern, place.begin, place.begin + place.length, row, parts.rows);
    }
  }

  /// Checks the values of a row of a ragged field.
  static void check_values(const Field& field, const std::byte* block, const Pattern& pattern,
                           std::int64_t first, std::int64_t behind, std::int64_t row,
                           std::int64_t rows) {
    const std::size_t begin = value_at(field, first), end = value_at(field, behind);
    if (end - begin >= kSure && pattern.is_all(block, begin, end))
      throw_unwritten(field, row, row + 1, rows);
  }

  /// Checks the offsets and values of a ragged field that the source wrote on the device.
  void check_ragged_slot(const Field& field, const std::byte* contents, const Pattern& pattern,
                         std::int64_t rows) const {
    const auto bytes = static_cast<std::size_t>(rows + 1) * sizeof(std::int64_t);
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(rows + 1));
    std::memcpy(offsets.data(), contents + field.offset, bytes);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const std::size_t at = field.offset + i * sizeof(std::int64_t);
      if (pattern.is_all(contents, at, at + sizeof(std::int64_t)))
        throw std::logic_error("the source left offset " + std::to_string(i) + " of field " +
                               field.name + " unwritten");
      if (offsets[i] < (i == 0 ? 0 : offsets[i - 1]) || offsets[i] > field.capacity)
        throw std::logic_error("the source wrote " + std::to_string(offsets[i]) + " as offset " +
                               std::to_string(i) + " of field " + field.name + ", behind " +
                               std::to_string(i == 0 ? 0 : offsets[i - 1]) +
                               " and with a capacity of " + std::to_string(field.capacity));
    }
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
      check_values(field, contents, pattern, offsets[i], offsets[i + 1],
                   static_cast<std::int64_t>(i), rows);
  }

  const BlockLayout& layout_;
  std::atomic<std::uint64_t> fills_{0};
  std::mutex mutex_;                                 // guards evidence_
  std::vector<std::vector<std::uint8_t>> evidence_;  // for each field and row: the blank bytes in
                                                     // consecutive batches
};

}  // namespace penstock::detail
