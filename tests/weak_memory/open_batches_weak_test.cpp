// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/pipeline/open_batches.hpp>

using penstock::detail::OpenBatches;
using penstock::detail::OpenRows;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;
using penstock::test::weak::wait_until_others_wait;

namespace {

constexpr int kRows = 3;

/// The worker that opens it writes `number`, each worker its own rows, the one with the last row
/// reads all.
struct RowBatch : OpenRows {
  Plain<int> number{-1};
  Plain<int> rows[kRows];
};

/// Workers that fill batches of kRows rows together.
class RowWorkers {
 public:
  RowWorkers(std::size_t workers, int batches) : open_(workers), batches_(batches) {}

  void work(std::size_t worker, std::int64_t rows_at_once) {
    const auto open_next = [&]() -> RowBatch* { return open(worker); };
    const auto wait = [](auto&& waiting) { waiting(); };
    while (const auto piece = open_.next(rows_at_once, open_next, wait)) {
      const int number = piece.batch->number;
      for (std::int64_t row = piece.first; row < piece.first + piece.rows; ++row)
        piece.batch->rows[row] = kRows * number + static_cast<int>(row);
      if (piece.batch->count_filled(piece.rows)) finish(*piece.batch);
    }
  }

  /// Each batch was filled, once.
  void expect_all() const {
    expect(finished_.load(std::memory_order_relaxed) == (1 << batches_) - 1, "every batch came");
  }

 private:
  /// Under no lock but that one worker opens at a time.
  RowBatch* open(std::size_t worker) {
    if (next_ == batches_) return nullptr;
    RowBatch& batch = open_.open(worker);
    batch.number = next_;
    next_ = next_ + 1;
    batch.set_rows(kRows);
    return &batch;
  }
  void finish(RowBatch& batch) {
    const int number = batch.number;
    for (int row = 0; row < kRows; ++row)
      expect(batch.rows[row] == kRows * number + row, "the row");
    batch.number = -1;  // What comes after close() is another batch's.
    open_.close(batch);
    const int before = finished_.fetch_or(1 << number, std::memory_order_relaxed);
    expect((before & (1 << number)) == 0, "a batch is finished once");
  }

  OpenBatches<RowBatch> open_;
  const int batches_;
  Plain<int> next_{0};
  std::atomic<int> finished_{0};
};

}  // namespace

TEST_CASE("weak: workers fill each row of each open batch once, and the last sees all of them",
          "[open_batches]") {
  const std::int64_t rows_at_once = GENERATE(1, 2, 3);
  explore([rows_at_once] {
    RowWorkers workers(3, 4);
    std::thread first([&] { workers.work(0, rows_at_once); });
    std::thread second([&] { workers.work(1, 1); });
    workers.work(2, rows_at_once);
    first.join();
    second.join();
    workers.expect_all();
  });
}

TEST_CASE("weak: a worker that waits for a batch to be opened sleeps", "[open_batches]") {
  explore([] {
    OpenBatches<RowBatch> open(2);
    const auto wait = [](auto&& waiting) { waiting(); };
    RowBatch& first = open.open(0);
    first.set_rows(2);
    for (int row = 0; row < 2; ++row)
      open.next(
          1, [&] { return &first; }, wait);

    std::atomic<bool> opening{false};
    RowBatch& second = open.open(1);
    std::thread opener([&] {
      const auto open_second = [&] {
        opening.store(true, std::memory_order_relaxed);
        wait_until_others_wait();
        second.set_rows(2);
        return &second;
      };
      const auto piece = open.next(1, open_second, wait);
      expect(piece.batch == &second && piece.first == 0 && piece.rows == 1, "the first row");
    });
    while (!opening.load(std::memory_order_relaxed)) std::this_thread::yield();
    const auto open_none = []() -> RowBatch* {
      expect(false, "no batch is opened while an older one has rows left");
      return nullptr;
    };
    const auto piece = open.next(2, open_none, wait);
    expect(piece.batch == &second && piece.first == 1 && piece.rows == 1, "the second row");
    opener.join();
  });
}
