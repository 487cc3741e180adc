// SPDX-License-Identifier: Apache-2.0
#pragma once

// OpenBatches: how many workers fill one batch together, the oldest first.
//
// A batch is open from the moment that it has memory and a number until its last row is filled. A
// worker takes a piece of it, a range of rows, at a time. At most one open batch has rows left: the
// batch on offer. Only the worker that finds none left opens the next one, and only one worker
// opens at a time; so no younger batch is begun while an older one has rows left.
//
// Each open batch has a worker in one of its pieces, so there are never more open batches than
// workers: a fixed set of them is used over and over.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/detail/sync/event_count.hpp>

namespace penstock::detail {

/// The rows of an open batch. `Batch` derives from it.
class OpenRows {
 public:
  /// The batch has `rows` rows, and none is taken. For the worker that opens it.
  void set_rows(std::int64_t rows) {
    rows_ = rows;
    unfilled_.store(rows, std::memory_order_relaxed);
  }

  /// This many rows are filled; true: those were the last. That worker then has the batch alone,
  /// and sees what all others have written.
  bool count_filled(std::int64_t rows) {
    if (rows == rows_) return true;  // In one piece: nobody else had any.
    return unfilled_.fetch_sub(rows, std::memory_order_acq_rel) == rows;
  }

 private:
  template <class>
  friend class OpenBatches;

  bool any_left() const { return left_.load(std::memory_order_relaxed) > 0; }
  /// Rows that were left until now; 0: there were none. Takes `most` of them at most.
  std::int64_t take(std::int64_t most) {
    std::int64_t left = left_.load(std::memory_order_relaxed);
    // Acquire: whoever takes rows sees the batch as it was when it was offered.
    while (left != 0 && !left_.compare_exchange_weak(left, left - std::min(left, most),
                                                     std::memory_order_acquire)) {
    }
    return left;
  }

  std::int64_t rows_ = 0;
  std::atomic<std::int64_t> left_{0};      // rows that nobody has taken
  std::atomic<std::int64_t> unfilled_{0};  // rows that are not filled yet
  std::atomic<bool> open_{false};
};

template <class Batch>
class OpenBatches {
 public:
  /// Some rows of a batch, for one worker. A batch without rows (it failed when it was opened) is
  /// one piece all the same.
  struct Piece {
    Batch* batch = nullptr;
    std::int64_t first = 0, rows = 0;
    explicit operator bool() const noexcept { return batch != nullptr; }
  };

  explicit OpenBatches(std::size_t workers)
      : count_(workers), batches_(std::make_unique<Batch[]>(workers)) {}

  /// A batch that is not open, for a worker that is in no piece.
  Batch& open(std::size_t worker) {
    for (std::size_t i = worker;; i = (i + 1) % count_) {
      std::atomic<bool>& open = batches_[i].open_;
      // Acquire: what the batch was before is over.
      if (!open.load(std::memory_order_relaxed) && !open.exchange(true, std::memory_order_acquire))
        return batches_[i];
    }
  }
  /// The batch of a worker that fills all its batches alone: nobody else may open() any, so this
  /// needs no atomic operation, and no close().
  Batch& own(std::size_t worker) { return batches_[worker]; }
  /// It is used no more.
  void close(Batch& batch) { batch.open_.store(false, std::memory_order_release); }

  /// All rows of `batch`, which one worker fills alone.
  static Piece whole(Batch& batch) { return {&batch, 0, batch.rows_}; }

  /// The next piece of at most `most` rows: of the batch on offer or, where that has none left, of
  /// the one that `open_next` returns; it may take long, and other workers wait for it meanwhile.
  /// `open_next` returns nullptr at the end: then there is no piece. `wait` is called with the
  /// waiting to be done.
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
    Batch* const batch = offered_.load(std::memory_order_relaxed);
    if (batch == nullptr) return {};
    const std::int64_t left = batch->take(most);
    if (left == 0) return {};
    return {batch, batch->rows_ - left, std::min(left, most)};
  }

  /// Offers what the opening worker leaves of `batch`, after its own piece.
  Piece offer(Batch* batch, std::int64_t most) {
    if (batch == nullptr) return {};
    const std::int64_t own = std::min(most, batch->rows_);
    batch->left_.store(batch->rows_ - own, std::memory_order_release);
    offered_.store(batch, std::memory_order_relaxed);
    return {batch, 0, own};
  }

  bool may_go_on() const {
    if (!opening_.load(std::memory_order_relaxed)) return true;
    const Batch* const batch = offered_.load(std::memory_order_relaxed);
    return batch != nullptr && batch->any_left();
  }

  const std::size_t count_;
  const std::unique_ptr<Batch[]> batches_;
  // A hint where to look, relaxed: rows are taken from the batch's own count. A worker with an old
  // value finds no rows, acquires opening_, and looks again.
  std::atomic<Batch*> offered_{nullptr};
  std::atomic<bool> opening_{false};  // A worker is.
  EventCount changed_;
};

}  // namespace penstock::detail
