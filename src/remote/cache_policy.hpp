// SPDX-License-Identifier: Apache-2.0
#pragma once

// CachePolicy: what a cache of equal slots keeps.
//
// It fills, and then keeps what it has: where each epoch has a new permutation, no cache of the
// share f has more hits than f, and this one has as many. Where the next reads are known, an item
// that is read later gives way to one that is read sooner. If all reads are known, that is the rule
// of Belady ("A study of replacement algorithms for a virtual-storage computer", IBM Systems
// Journal, 1966), and no policy has more hits.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <penstock/version.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::remote {

/// One thread at a time. read() does not allocate; the members that throw, throw std::bad_alloc.
class CachePolicy {
 public:
  using Item = std::uint64_t;
  using Slot = std::uint32_t;
  static constexpr Slot no_slot = ~Slot{0};
  /// Announced reads are forgotten from this many on.
  static constexpr std::size_t most_reads = std::size_t{1} << 24;

  explicit CachePolicy(Slot slots)
      : heap_(slots), places_(slots), nexts_(slots, kFree), items_(slots) {
    std::iota(heap_.begin(), heap_.end(), Slot{0});
    std::iota(places_.begin(), places_.end(), Slot{0});
  }

  Slot slots() const noexcept { return static_cast<Slot>(heap_.size()); }

  /// Behind the reads that were announced before comes one of `item`.
  void will_read(Item item) {
    if (reads_.size() >= most_reads) return;
    const std::uint64_t number = first_read_ + reads_.size();
    reads_.push_back({item, kUnknown});
    Known& known = known_[item];
    if (known.next != kUnknown) {
      reads_[static_cast<std::size_t>(known.last - first_read_)].next = number;
    } else {
      known.next = number;
      if (known.slot != no_slot) set_next(known.slot, number);
    }
    known.last = number;
  }

  /// The item is read now. Announced reads before this one are past.
  void read(Item item) noexcept {
    const auto found = known_.find(item);
    if (found == known_.end() || found->second.next == kUnknown) return;
    for (const std::uint64_t now = found->second.next; first_read_ <= now; ++first_read_) {
      const auto past = known_.find(reads_.front().item);
      Known& known = past->second;
      known.next = reads_.front().next;
      if (known.slot != no_slot)
        set_next(known.slot, known.next);
      else if (known.next == kUnknown)
        known_.erase(past);
      reads_.pop_front();
    }
  }

  /// Where the item is; no_slot: it is not here.
  Slot slot_of(Item item) const noexcept {
    const auto found = known_.find(item);
    return found == known_.end() ? no_slot : found->second.slot;
  }

  /// Where an item should be put that is not here: a free slot, the lowest, or the one that is read
  /// last, if that is after the item. nullopt: the item is not kept.
  std::optional<Slot> place_for(Item item) const noexcept {
    if (heap_.empty()) return std::nullopt;
    const auto found = known_.find(item);
    const std::uint64_t next = found == known_.end() ? kUnknown : found->second.next;
    const Slot slot = heap_.front();
    if (nexts_[slot] <= next) return std::nullopt;
    return slot;
  }

  /// The slot has this item from now on, and no other slot has it.
  void put(Slot slot, Item item) {
    Known& known = known_[item];
    if (known.slot == slot) return;
    const std::uint64_t next = known.next;
    const Slot before = std::exchange(known.slot, slot);  // remove() must not erase it
    if (before != no_slot) set_next(before, kFree);
    remove(slot);
    items_[slot] = item;
    set_next(slot, next);
  }

  /// The slot is free from now on.
  void remove(Slot slot) noexcept {
    if (nexts_[slot] == kFree) return;
    const auto found = known_.find(items_[slot]);
    found->second.slot = no_slot;
    if (found->second.next == kUnknown) known_.erase(found);
    set_next(slot, kFree);
  }

  bool is_free(Slot slot) const noexcept { return nexts_[slot] == kFree; }
  /// Whether no slot is free.
  bool is_full() const noexcept { return heap_.empty() || !is_free(heap_.front()); }

 private:
  // What is to come in place of a number of a read.
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  static constexpr std::uint64_t kUnknown = kFree - 1;

  struct Read {
    Item item = 0;
    std::uint64_t next = kUnknown;  // of the same item
  };
  struct Known {
    std::uint64_t next = kUnknown, last = kUnknown;  // reads that were announced
    Slot slot = no_slot;
  };

  void set_next(Slot slot, std::uint64_t next) noexcept {
    nexts_[slot] = next;
    std::size_t at = places_[slot];
    while (at > 0 && goes_before(slot, heap_[(at - 1) / 2])) at = move(heap_[(at - 1) / 2], at);
    for (std::size_t below = 2 * at + 1; below < heap_.size(); below = 2 * at + 1) {
      if (below + 1 < heap_.size() && goes_before(heap_[below + 1], heap_[below])) ++below;
      if (!goes_before(heap_[below], slot)) break;
      at = move(heap_[below], at);
    }
    move(slot, at);
  }
  bool goes_before(Slot one, Slot other) const noexcept {
    return nexts_[one] != nexts_[other] ? nexts_[one] > nexts_[other] : one < other;
  }
  /// Returns where it was.
  std::size_t move(Slot slot, std::size_t to) noexcept {
    heap_[to] = slot;
    return std::exchange(places_[slot], static_cast<Slot>(to));
  }

  std::vector<Slot> heap_;                 // the slot that is read last is the first
  std::vector<Slot> places_;               // of each slot: where it is in heap_
  std::vector<std::uint64_t> nexts_;       // of each slot
  std::vector<Item> items_;                // of each slot that is not free
  std::unordered_map<Item, Known> known_;  // what is here or announced
  std::deque<Read> reads_;
  std::uint64_t first_read_ = 0;  // number of the front
};

}  // namespace penstock::remote
