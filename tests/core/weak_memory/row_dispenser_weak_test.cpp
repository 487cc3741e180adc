// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/pipeline/row_dispenser.hpp>
#include <penstock/detail/sync/index_stack.hpp>

using penstock::detail::BatchRows;
using penstock::detail::IndexStack;
using penstock::detail::RowDispenser;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;
using penstock::test::weak::wait_until_others_wait;

namespace {

constexpr int kRows = 3, kMostRecords = 4;

/// The worker that opens it writes `number`, each worker its own rows, the one with the last row
/// reads all.
struct RowRecord {
  BatchRows to_fill;
  Plain<int> number{-1};
  Plain<int> rows[kRows];
};

/// Workers that fill batches of kRows rows together.
class RowWorkers {
 public:
  /// As few records as workers: so a record is used again while others still look at it.
  RowWorkers(std::uint32_t records, int batches) : batches_(batches) {
    for (std::uint32_t i = 0; i < records; ++i) free_.push(i);
  }

  void work(std::int64_t rows_at_once) {
    const auto open_next = [&]() -> RowRecord* { return open(); };
    const auto wait = [](auto&& waiting) { waiting(); };
    while (const auto piece = dispenser_.next(rows_at_once, open_next, wait)) {
      const int number = piece.record->number;
      for (std::int64_t row = piece.first; row < piece.first + piece.rows; ++row)
        piece.record->rows[row] = kRows * number + static_cast<int>(row);
      if (piece.record->to_fill.count_filled(piece.rows)) finish(*piece.record);
    }
  }

  /// Each batch was filled, once.
  void expect_all() const {
    expect(finished_.load(std::memory_order_relaxed) == (1 << batches_) - 1, "every batch came");
  }

 private:
  /// Under no lock but that one worker opens at a time.
  RowRecord* open() {
    if (next_ == batches_) return nullptr;
    std::uint32_t index = IndexStack::kNone;
    while ((index = free_.pop()) == IndexStack::kNone) std::this_thread::yield();
    RowRecord& record = records_[index];
    record.number = next_;
    next_ = next_ + 1;
    record.to_fill.open(kRows);
    return &record;
  }
  void finish(RowRecord& record) {
    const int number = record.number;
    for (int row = 0; row < kRows; ++row)
      expect(record.rows[row] == kRows * number + row, "the row");
    record.number = -1;  // What comes after the push is another batch's.
    free_.push(static_cast<std::uint32_t>(&record - records_));
    const int before = finished_.fetch_or(1 << number, std::memory_order_relaxed);
    expect((before & (1 << number)) == 0, "a batch is finished once");
  }

  RowRecord records_[kMostRecords];
  IndexStack free_{kMostRecords};
  RowDispenser<RowRecord> dispenser_;
  const int batches_;
  Plain<int> next_{0};
  std::atomic<int> finished_{0};
};

}  // namespace

TEST_CASE("weak: workers fill each row of each open batch once, and the last sees all of them",
          "[row_dispenser]") {
  const std::int64_t rows_at_once = GENERATE(1, 2, 3);
  explore([rows_at_once] {
    RowWorkers workers(3, 4);
    std::thread first([&] { workers.work(rows_at_once); });
    std::thread second([&] { workers.work(1); });
    workers.work(rows_at_once);
    first.join();
    second.join();
    workers.expect_all();
  });
}

TEST_CASE("weak: the record of a batch that is over may have the next batch at once",
          "[row_dispenser]") {
  const std::uint32_t records = GENERATE(1u, 2u);
  explore([records] {
    RowWorkers workers(records, 4);
    std::thread first([&] { workers.work(1); });
    std::thread second([&] { workers.work(1); });
    workers.work(2);
    first.join();
    second.join();
    workers.expect_all();
  });
}

TEST_CASE("weak: a worker that waits for a batch to be opened sleeps", "[row_dispenser]") {
  explore([] {
    RowDispenser<RowRecord> dispenser;
    const auto wait = [](auto&& waiting) { waiting(); };
    RowRecord records[2];
    RowRecord &first = records[0], &second = records[1];
    first.to_fill.open(2);
    for (int row = 0; row < 2; ++row)
      dispenser.next(
          1, [&] { return &first; }, wait);

    std::atomic<bool> opening{false};
    std::thread opener([&] {
      const auto open_second = [&] {
        opening.store(true, std::memory_order_relaxed);
        wait_until_others_wait();
        second.to_fill.open(2);
        return &second;
      };
      const auto piece = dispenser.next(1, open_second, wait);
      expect(piece.record == &second && piece.first == 0 && piece.rows == 1, "the first row");
    });
    while (!opening.load(std::memory_order_relaxed)) std::this_thread::yield();
    const auto open_none = []() -> RowRecord* {
      expect(false, "no batch is opened while an older one has rows left");
      return nullptr;
    };
    const auto piece = dispenser.next(2, open_none, wait);
    expect(piece.record == &second && piece.first == 1 && piece.rows == 1, "the second row");
    opener.join();
  });
}
