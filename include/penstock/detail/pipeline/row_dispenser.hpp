// SPDX-License-Identifier: Apache-2.0
#pragma once

// RowDispenser: how many workers fill one batch together, the oldest first.
//
// A batch is open from the moment that it has memory and a number until its last row is filled. A
// worker takes a piece of it, a range of rows, at a time. At most one open batch has rows left: the
// batch on offer. Only the worker that finds none left opens the next one, and only one worker
// opens at a time; so no younger batch is begun while an older one has rows left.
//
// Records outlive the dispenser. So a worker that still looks at the record of an older batch finds
// no rows there, or those of a later batch that is on offer now, which are as good.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The rows of a batch: how many there are, which nobody has taken, and which are not filled yet.
class BatchRows {
 public:
  /// Sets that the batch has `rows` rows, none of which is taken. The worker that opens it calls
  /// this.
  void open(std::int64_t rows) {
    rows_ = rows;
    unfilled_.store(rows, std::memory_order_relaxed);
  }

  /// Counts `rows` as filled. True: those were the last. The worker then has the batch alone, and
  /// sees what all others have written.
  bool count_filled(std::int64_t rows) {
    if (rows == rows_) return true;  // In one piece: nobody else had any.
    return unfilled_.fetch_sub(rows, std::memory_order_acq_rel) == rows;
  }

  std::int64_t all() const { return rows_; }
  bool any_left() const { return left_.load(std::memory_order_relaxed) > 0; }

  /// Lets other workers take the rows behind the opening worker's own piece.
  void offer(std::int64_t own) { left_.store(rows_ - own, std::memory_order_release); }

  /// Takes at most `most` rows. Returns how many were left before; 0: there were none.
  std::int64_t take(std::int64_t most) {
    std::int64_t left = left_.load(std::memory_order_relaxed);
    // Acquire: whoever takes rows sees the batch as it was when it was offered.
    while (left != 0 && !left_.compare_exchange_weak(left, left - std::min(left, most),
                                                     std::memory_order_acquire)) {
    }
    return left;
  }

 private:
  std::int64_t rows_ = 0;
  std::atomic<std::int64_t> left_{0};      // rows that nobody has taken
  std::atomic<std::int64_t> unfilled_{0};  // rows that are not filled yet
};

/// `Record` has a member `BatchRows to_fill`.
template <class Record>
class RowDispenser {
 public:
  /// Some rows of a batch, for one worker. A batch without rows (it failed when it was opened) is
  /// one piece all the same.
  struct Piece {
    Record* record = nullptr;
    std::int64_t first = 0, rows = 0;
    explicit operator bool() const noexcept { return record != nullptr; }
  };

  /// All rows of a batch that one worker fills alone.
  static Piece whole(Record& record) { return {&record, 0, record.to_fill.all()}; }

  /// Returns the next piece of at most `most` rows: of the batch on offer or, if that has none
  /// left, of the one that `open_next` returns. `open_next` may take long, and other workers wait
  /// for it meanwhile. It returns nullptr at the end; then there is no piece. `wait(f)` has to call
  /// `f`, which waits.
  template <class OpenNext, class Wait>
  Piece next(std::int64_t most, OpenNext&& open_next, Wait&& wait) {
    while (true) {
      if (const Piece piece = take(most)) return piece;
      if (!opening_.exchange(true, std::memory_order_acquire)) {
        Piece piece = take(most);  // Another worker may have opened it meanwhile.
        if (!piece) piece = offer(open_next(), most);
        opening_.store(false, std::memory_order_release);
        changed_.notify_all();
        return piece;
      }
      wait([this] { changed_.wait([this] { return may_go_on(); }); });
    }
  }

 private:
  Piece take(std::int64_t most) {
    Record* const record = offered_.load(std::memory_order_relaxed);
    if (record == nullptr) return {};
    const std::int64_t left = record->to_fill.take(most);
    if (left == 0) return {};
    return {record, record->to_fill.all() - left, std::min(left, most)};
  }

  Piece offer(Record* record, std::int64_t most) {
    if (record == nullptr) return {};
    const std::int64_t own = std::min(most, record->to_fill.all());
    record->to_fill.offer(own);
    offered_.store(record, std::memory_order_relaxed);
    return {record, 0, own};
  }

  bool may_go_on() const {
    if (!opening_.load(std::memory_order_relaxed)) return true;
    const Record* const record = offered_.load(std::memory_order_relaxed);
    return record != nullptr && record->to_fill.any_left();
  }

  // A hint where to look, relaxed: rows are taken from the batch's own count. A worker with an old
  // value finds no rows, acquires opening_, and looks again.
  std::atomic<Record*> offered_{nullptr};
  std::atomic<bool> opening_{false};  // A worker is.
  EventCount changed_;
};

}  // namespace penstock::detail
