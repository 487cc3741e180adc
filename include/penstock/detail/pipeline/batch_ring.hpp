// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchRing: how finished batches get from many workers to one consumer, in order or as they come,
// without a lock.
//
// A worker enters when there is room, and claims a number only when it has all it needs to make the
// batch: so the oldest number is never held up by younger ones that took what it needs. A claimed
// number is published exactly once. In order, number n goes into cell n % depth; as they come, the
// n-th published one does. At most `depth` workers and items are inside, so a cell that is written
// was emptied before. Another worker than the one that writes it may have seen that when it
// entered. It claimed (unordered: published) before, so claims (publications) acquire and release.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/sync/event_count.hpp>
#include <utility>

namespace penstock::detail {

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

template <class Item>
class BatchRing {
 public:
  /// Has no numbers until `reopen`.
  BatchRing(std::size_t depth, bool ordered)
      : depth_(depth), ordered_(ordered), cells_(std::make_unique<Cell[]>(depth)) {}

  // ---- For workers ----------------------------------------------------------------------------

  /// Room for one more batch was taken; false: there is no room now, or never again (see `closed`).
  bool try_enter() {
    std::uint64_t entered = entered_.load(std::memory_order_relaxed);
    while (has_room(entered))
      if (entered_.compare_exchange_weak(entered, entered + 1, std::memory_order_relaxed))
        return true;
    return false;
  }

  /// As try_enter, waiting for room; false: there is none any more.
  bool enter() {
    bool inside = false;
    room_.wait([&] { return (inside = try_enter()) || closed(); });
    if (closed()) room_.notify_all();  // Whoever else waits, waits in vain.
    return inside;
  }

  /// The next number, for a worker that has entered; nullopt: the ring was closed meanwhile.
  std::optional<std::uint64_t> claim() {
    std::uint64_t claimed = claimed_.load(std::memory_order_relaxed);
    while ((claimed & kClosed) == 0)
      if (claimed_.compare_exchange_weak(claimed, claimed + 1, std::memory_order_acq_rel)) {
        cells_[claimed % depth_].fetch_for_writing();  // While the source runs.
        return claimed;
      }
    return std::nullopt;
  }

  /// Hands over what became of a claimed number.
  void publish(std::uint64_t number, Item&& item, const BatchTimes& times = {}) {
    const std::uint64_t position =
        ordered_ ? number : published_.fetch_add(1, std::memory_order_acq_rel);
    Cell& cell = cells_[position % depth_];
    cell.item.emplace(std::move(item));
    cell.times = times;
    cell.full.store(position + 1, std::memory_order_release);
    ready_.notify_one();
  }

  /// The consumer looks again at what it waits for.
  void wake() { ready_.notify_one(); }

  /// No number is claimed any more; those that are will still be published.
  void close() {
    const std::uint64_t claimed = claimed_.fetch_or(kClosed, std::memory_order_relaxed);
    end_.store(claimed & ~kClosed, std::memory_order_relaxed);
    room_.notify_all();
    ready_.notify_one();
  }

  /// Nobody can enter any more.
  bool closed() const {
    return entered_.load(std::memory_order_relaxed) >= end_.load(std::memory_order_relaxed);
  }

  /// The number that will be claimed next.
  std::uint64_t next_number() const { return claimed_.load(std::memory_order_relaxed) & ~kClosed; }

  // ---- For the one consumer -------------------------------------------------------------------

  /// There is an item at the head.
  bool full() const { return full(head()); }

  /// All that were claimed have been taken, and no more will be.
  bool over() const { return head() == end_.load(std::memory_order_relaxed); }

  /// Blocks until the ring is full() or over().
  void wait() {
    wait([] { return false; });
  }
  /// Blocks until the ring is full() or over(), or `other` holds, which wake() follows.
  template <class Condition>
  void wait(Condition other) {
    ready_.wait([&] { return full() || over() || other(); });
  }

  /// The item at the head of a ring that is full().
  Item& front() { return *cells_[head() % depth_].item; }
  /// Its stamps.
  const BatchTimes& front_times() const { return cells_[head() % depth_].times; }

  /// Drops the item at the head of a ring that is full().
  void pop() {
    cells_[head() % depth_].item.reset();
    taken_.store(head() + 1, std::memory_order_release);
    room_.notify_one();
  }

  /// The position of the next item.
  std::uint64_t head() const { return taken_.load(std::memory_order_relaxed); }

  /// Items that could be taken now without a wait, up to `most`. Looks at each. For any thread.
  std::size_t queued(std::size_t most = ~std::size_t{0}) const {
    std::size_t items = 0;
    // After `depth` comes the head's own cell again.
    while (items < most && full(head() + items)) ++items;
    return items;
  }

  /// The same without a bound, for the consumer. Looks at each once, in however many calls: what is
  /// there stays until it is taken.
  std::size_t count_queued() {
    seen_full_ = std::max(seen_full_, head());
    while (full(seen_full_)) ++seen_full_;
    return seen_full_ - head();
  }

  /// Empties the ring and opens it for the numbers first ... limit - 1. No thread may use it
  /// meanwhile.
  void reopen(std::uint64_t first, std::uint64_t limit) {
    for (std::size_t i = 0; i < depth_; ++i) {
      cells_[i].item.reset();
      cells_[i].full.store(0, std::memory_order_relaxed);
    }
    end_.store(limit, std::memory_order_relaxed);
    taken_.store(first, std::memory_order_relaxed);
    seen_full_ = first;
    seen_taken_.store(first, std::memory_order_relaxed);
    published_.store(first, std::memory_order_relaxed);
    entered_.store(first, std::memory_order_relaxed);
    claimed_.store(first, std::memory_order_relaxed);
  }

 private:
  // Set in claimed_ it freezes the count below it: no claim succeeds after it.
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  // Cells of different workers share no cache line.
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> full{0};  // the position whose item is here, plus 1
    std::optional<Item> item;
    BatchTimes times;  // a cache line

    /// A hint: the cell's cache lines, which the consumer emptied, come to this core.
    void fetch_for_writing() {
      for (std::size_t line = 0; line < sizeof(Cell); line += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(this) + line, 1);
    }
  };

  bool full(std::uint64_t position) const {
    return cells_[position % depth_].full.load(std::memory_order_acquire) == position + 1;
  }

  bool has_room(std::uint64_t entered) {
    if (entered >= end_.load(std::memory_order_relaxed)) return false;
    // seen_taken_ is a copy of taken_, released by a worker that had acquired taken_: the cells
    // below it are empty. Another worker may store an older value: that only costs another read.
    if (entered < seen_taken_.load(std::memory_order_acquire) + depth_) return true;
    const std::uint64_t taken = taken_.load(std::memory_order_acquire);
    seen_taken_.store(taken, std::memory_order_release);
    return entered < taken + depth_;
  }

  const std::size_t depth_;
  const bool ordered_;
  const std::unique_ptr<Cell[]> cells_;
  // This cache line changes only when the ring is closed. Workers and consumer each write another
  // one, and seldom read the other side's: such a read costs more than the rest of a hand-over.
  std::atomic<std::uint64_t> end_{0};  // the first number that there will not be; below kClosed

  alignas(64) std::atomic<std::uint64_t> entered_{0};  // by workers
  std::atomic<std::uint64_t> claimed_{0};
  std::atomic<std::uint64_t> published_{0};   // only when unordered
  std::atomic<std::uint64_t> seen_taken_{0};  // no more than taken_
  EventCount ready_;

  alignas(64) std::atomic<std::uint64_t> taken_{0};  // by the consumer
  std::uint64_t seen_full_{0};                       // its own: full up to here
  EventCount room_;
};

}  // namespace penstock::detail
