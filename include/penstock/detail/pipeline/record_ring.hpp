// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordRing: how the records of filled batches get from many workers to the thread that stages,
// and from there to the consumer, in order or as they come, without a lock and without a wait.
//
//   [taken, staged) is staged, [staged, ...) is filled where its cell is full.
//
// A worker reserves a number, takes a record and all else that the batch needs, and only then
// claims the number. So younger numbers never take what the oldest one waits for. A claimed number
// is published exactly once. In order, number n gets position n; unordered, the n-th number that is
// published does.
//
// Each claimed position has a record of its own until it is taken, and there are no more records
// than cells. So a cell that is written was emptied before. The worker that writes it is not always
// the one whose record proves that. It claimed (unordered: published) behind that one, so claims
// (publications) acquire and release.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <penstock/version.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The largest number that a ring can count to.
inline constexpr std::uint64_t most_batches = std::numeric_limits<std::uint64_t>::max() >> 1;

/// a * b, or most_batches.
inline std::uint64_t saturated_product(std::uint64_t a, std::uint64_t b) {
  if (a != 0 && b > most_batches / a) return most_batches;
  return std::min(a * b, most_batches);
}

/// The number over all epochs of batch `batch` of epoch `epoch`, where an epoch has `batches`; or
/// most_batches.
inline std::uint64_t batch_number(std::uint64_t batches, std::uint64_t epoch, std::uint64_t batch) {
  return std::min(saturated_product(batches, epoch) + std::min(batch, most_batches), most_batches);
}

/// `Record` is a pointer to one.
template <class Record>
class RecordRing {
 public:
  /// Has no numbers until `reopen`. `records`: how many there are.
  RecordRing(std::size_t records, bool ordered)
      : mask_(std::bit_ceil(records) - 1),
        ordered_(ordered),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {}

  // ---- For workers ----------------------------------------------------------------------------

  /// Reserves one of the numbers that are left for this worker, if `has_room(turn)`. Turns count as
  /// numbers do, but the number that the worker claims later may be another one. False: none is
  /// left, or there is no room now.
  template <class HasRoom>
  bool reserve(HasRoom has_room) noexcept {
    std::uint64_t turn = reserved_.load(std::memory_order_relaxed);
    while (turn < end_.load(std::memory_order_relaxed) && has_room(turn))
      if (reserved_.compare_exchange_weak(turn, turn + 1, std::memory_order_relaxed)) return true;
    return false;
  }
  /// The same, where there is always room.
  bool reserve() noexcept {
    return reserve([](std::uint64_t) { return true; });
  }

  /// Returns the next number. A worker that has reserved one and has a record calls this. nullopt:
  /// the ring was closed meanwhile.
  std::optional<std::uint64_t> claim() noexcept {
    std::uint64_t claimed = claimed_.load(std::memory_order_relaxed);
    while ((claimed & kClosed) == 0)
      if (claimed_.compare_exchange_weak(claimed, claimed + 1, std::memory_order_acq_rel)) {
        // Another thread has read this cache line last. It arrives here while the source runs.
        __builtin_prefetch(&cells_[claimed & mask_], 1);
        return claimed;
      }
    return std::nullopt;
  }

  /// Hands over the record of a claimed number.
  void publish(std::uint64_t number, Record record) noexcept {
    const std::uint64_t position =
        ordered_ ? number : published_.fetch_add(1, std::memory_order_acq_rel);
    Cell& cell = cells_[position & mask_];
    cell.record = record;
    cell.full.store(position + 1, std::memory_order_release);
  }

  /// Lets no number be claimed any more. Claimed ones will still be published. Any thread.
  void close() noexcept {
    const std::uint64_t claimed = claimed_.fetch_or(kClosed, std::memory_order_relaxed);
    end_.store(claimed & ~kClosed, std::memory_order_relaxed);
  }

  /// No worker gets a number any more, even if it has reserved one.
  bool closed() const noexcept { return (claimed_.load(std::memory_order_relaxed) & kClosed) != 0; }
  /// Nobody can reserve a number any more: the ring is closed, or all are reserved.
  bool all_reserved() const noexcept {
    return reserved_.load(std::memory_order_relaxed) >= end_.load(std::memory_order_relaxed);
  }

  /// The number that will be claimed next.
  std::uint64_t next_number() const noexcept {
    return claimed_.load(std::memory_order_relaxed) & ~kClosed;
  }

  // ---- For the thread that stages: one at a time ------------------------------------------------

  /// The next batch to be staged is filled.
  bool has_filled() const noexcept { return full(staged_.load(std::memory_order_relaxed)); }
  /// Its record.
  const Record& filled_head() const noexcept {
    return cells_[staged_.load(std::memory_order_relaxed) & mask_].record;
  }
  /// Marks it as staged: a consumer may take it.
  void stage() noexcept {
    staged_.store(staged_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  /// All claimed numbers are staged, and no more will be claimed.
  bool all_staged() const noexcept {
    return staged_.load(std::memory_order_relaxed) == end_.load(std::memory_order_relaxed);
  }
  /// The position of the next batch to be staged.
  std::uint64_t staged_position() const noexcept { return staged_.load(std::memory_order_relaxed); }

  // ---- For the consumer: one thread at a time ---------------------------------------------------

  /// There is a staged batch.
  bool has_staged() const noexcept {
    return taken_.load(std::memory_order_relaxed) != staged_.load(std::memory_order_acquire);
  }
  /// The record of the first one.
  const Record& staged_head() const noexcept {
    return cells_[taken_.load(std::memory_order_relaxed) & mask_].record;
  }
  /// Removes the first one from the ring.
  void take() noexcept {
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  /// The position of the next one. Any thread.
  std::uint64_t position() const noexcept { return taken_.load(std::memory_order_relaxed); }

  // ---- For statistics ---------------------------------------------------------------------------

  /// How many are filled and not staged, without a gap. Only the thread that stages calls this. It
  /// looks at each batch once, over all calls: what is filled stays so until it is staged.
  std::size_t count_filled() noexcept {
    const std::uint64_t first = staged_.load(std::memory_order_relaxed);
    seen_full_ = std::max(seen_full_, first);
    while (full(seen_full_)) ++seen_full_;
    return seen_full_ - first;
  }

  /// How many are staged, and not taken. Any thread.
  std::size_t staged() const noexcept {
    const std::uint64_t taken = taken_.load(std::memory_order_relaxed);
    return staged_.load(std::memory_order_relaxed) - taken;
  }

  // ---- Restart ----------------------------------------------------------------------------------

  /// Empties the ring and opens it for the numbers first ... limit - 1. No thread may use it
  /// meanwhile.
  void reopen(std::uint64_t first, std::uint64_t limit) noexcept {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].full.store(0, std::memory_order_relaxed);
    for (auto* cursor : {&taken_, &staged_, &published_, &reserved_, &claimed_})
      cursor->store(first, std::memory_order_relaxed);
    seen_full_ = first;
    end_.store(limit, std::memory_order_relaxed);
  }

 private:
  // Set in claimed_ it freezes the count below it: no claim succeeds after it.
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  // Cells of different workers share no cache line.
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> full{0};  // the position whose record is here, plus 1
    Record record{};
  };

  bool full(std::uint64_t position) const noexcept {
    return cells_[position & mask_].full.load(std::memory_order_acquire) == position + 1;
  }

  const std::size_t mask_;  // One less than the number of cells, which is a power of two.
  const bool ordered_;
  const std::unique_ptr<Cell[]> cells_;
  // This cache line changes only when the ring is closed. Each of the lines below has one writer at
  // a time, or is the workers'.
  std::atomic<std::uint64_t> end_{0};  // the first number that there will not be; below kClosed

  alignas(64) std::atomic<std::uint64_t> reserved_{0};  // by workers
  std::atomic<std::uint64_t> claimed_{0};
  std::atomic<std::uint64_t> published_{0};  // only when unordered

  alignas(64) std::atomic<std::uint64_t> staged_{0};  // by the thread that stages
  std::uint64_t seen_full_ = 0;                       // its own: full up to here

  alignas(64) std::atomic<std::uint64_t> taken_{0};  // by the consumer; it orders nothing
};

}  // namespace penstock::detail
