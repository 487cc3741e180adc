// SPDX-License-Identifier: Apache-2.0
#include "shelves.hpp"

#include <algorithm>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Threads take shelves in turns, so a process whose threads come and go needs no more shelves.
std::size_t this_thread_number() {
  static std::atomic<std::size_t> threads{0};
  thread_local constinit std::size_t number = 0;
  if (number == 0) number = ++threads;
  return number;
}

}  // namespace

void Chunk::add(const Event& event) {
  events[size++] = event;
  latest = std::max(latest, event.end);
}

Shelves::Shelves(std::size_t max_events, Time last, Time (*clock)())
    : bound_(max_events), last_(last), clock_(clock) {}

bool Shelves::add(const Event& event) {
  if (last_ == 0 && added_.fetch_add(1, std::memory_order_relaxed) >= bound_) return false;
  Shelf& shelf = shelves_[this_thread_number() % kShelves];
  if (put(shelf, event) && last_ != 0) make_room();
  return true;
}

/// Returns true if a chunk is full now.
bool Shelves::put(Shelf& shelf, const Event& event) {
  const std::lock_guard lock(shelf.mutex);
  if (shelf.chunks.empty() || shelf.chunks.back()->full())
    shelf.chunks.push_back(std::make_shared_for_overwrite<Chunk>());
  Chunk& chunk = *shelf.chunks.back();
  chunk.add(event);
  if (chunk.full()) full_.fetch_add(1, std::memory_order_relaxed);
  return chunk.full();
}

Chunks Shelves::share() {
  Chunks all;
  all.reserve(full_.load(std::memory_order_relaxed) + 2 * kShelves);  // not with a lock held
  for (Shelf& shelf : shelves_) {
    const std::lock_guard lock(shelf.mutex);
    for (const std::shared_ptr<Chunk>& chunk : shelf.chunks) all.push_back({chunk, chunk->size});
  }
  return all;
}

Chunks Shelves::take() {
  Chunks all;
  for (Shelf& shelf : shelves_) {
    const std::lock_guard lock(shelf.mutex);
    while (!shelf.chunks.empty()) remove_front(shelf, all);
  }
  added_ = 0;
  return all;
}

// ---- Keeping the latest events

/// Threads do not wait for each other here: the next thread does what is left.
void Shelves::make_room() {
  const std::unique_lock lock(room_, std::try_to_lock);
  if (!lock) return;
  if (const Time now = clock_(); now >= next_look_) {
    next_look_ = now + last_ / 16;
    forget_before(now - last_ - last_ / 16);
  }
  while (full_.load(std::memory_order_relaxed) > bound_ / Chunk::kEvents)
    if (!forget_oldest()) return;
}

void Shelves::forget_before(Time horizon) {
  for (Shelf& shelf : shelves_) {
    Chunks removed;  // freed without the lock
    const std::lock_guard lock(shelf.mutex);
    while (!shelf.chunks.empty() && shelf.chunks.front()->latest < horizon)
      forget_front(shelf, removed);
  }
}

/// Returns false if there is no full chunk, or if another thread took it.
bool Shelves::forget_oldest() {
  Shelf* oldest = nullptr;
  Time latest = std::numeric_limits<Time>::max();
  for (Shelf& shelf : shelves_) {
    const std::lock_guard lock(shelf.mutex);
    if (shelf.chunks.empty() || !shelf.chunks.front()->full()) continue;
    if (oldest != nullptr && shelf.chunks.front()->latest >= latest) continue;
    oldest = &shelf;
    latest = shelf.chunks.front()->latest;
  }
  if (oldest == nullptr) return false;
  Chunks removed;
  const std::lock_guard lock(oldest->mutex);
  if (oldest->chunks.empty() || !oldest->chunks.front()->full()) return false;
  forget_front(*oldest, removed);
  return true;
}

/// The shelf's lock and the lock `room_` are held.
void Shelves::forget_front(Shelf& shelf, Chunks& removed) {
  complete_since_ = std::max(complete_since_.load(), shelf.chunks.front()->latest);
  remove_front(shelf, removed);
}

/// The shelf's lock is held.
void Shelves::remove_front(Shelf& shelf, Chunks& removed) {
  if (shelf.chunks.front()->full()) full_.fetch_sub(1, std::memory_order_relaxed);
  const std::size_t size = shelf.chunks.front()->size;
  removed.push_back({std::move(shelf.chunks.front()), size});
  shelf.chunks.pop_front();
}

}  // namespace penstock::trace::detail
