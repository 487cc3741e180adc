// SPDX-License-Identifier: Apache-2.0
#pragma once

// std::atomic and std::atomic_flag on the machine of execution.hpp, and Plain for data that is not
// atomic. Outside of an execution they are plain values.

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "execution.hpp"

namespace penstock::test::weak {

inline bool acquires(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}
inline bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

/// Of the load that a failed compare_exchange is, also where it fails without a reason.
inline std::memory_order order_of_failure(std::memory_order order) {
  return order == std::memory_order_acq_rel   ? std::memory_order_acquire
         : order == std::memory_order_release ? std::memory_order_relaxed
                                              : order;
}

template <class T>
class Atomic {
 public:
  Atomic() : Atomic(T()) {}
  Atomic(T value) { append(value, std::memory_order_relaxed, nullptr); }  // NOLINT: as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  /// A race unless all that was done with it has happened before.
  ~Atomic() {
    if (Execution* const execution = Execution::current()) execution->note(uses_, Access::write);
  }

  T load(std::memory_order order = std::memory_order_seq_cst) const {
    Execution* const execution = Execution::current();
    if (execution == nullptr) return stores_.back().value;
    execution->step();
    return see(choose_store(*execution, order), order);
  }
  operator T() const { return load(); }  // NOLINT: as std::atomic

  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    if (Execution* const execution = Execution::current()) execution->step();
    append(value, order, nullptr);
  }
  T operator=(T value) {  // NOLINT: as std::atomic
    store(value);
    return value;
  }

  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    return modify([value](T) { return value; }, order);
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
    return modify([value](T old) { return static_cast<T>(old + value); }, order);
  }
  T fetch_sub(T value, std::memory_order order = std::memory_order_seq_cst) {
    return modify([value](T old) { return static_cast<T>(old - value); }, order);
  }
  T fetch_or(T value, std::memory_order order = std::memory_order_seq_cst) {
    return modify([value](T old) { return static_cast<T>(old | value); }, order);
  }
  T fetch_and(T value, std::memory_order order = std::memory_order_seq_cst) {
    return modify([value](T old) { return static_cast<T>(old & value); }, order);
  }
  T operator++() { return static_cast<T>(fetch_add(1) + 1); }
  T operator++(int) { return fetch_add(1); }

  bool compare_exchange_strong(T& expected, T value,
                               std::memory_order order = std::memory_order_seq_cst) {
    if (Execution* const execution = Execution::current()) execution->step();
    if (stores_.back().value != expected) {
      expected = see(stores_.size() - 1, order_of_failure(order));
      return false;
    }
    see(stores_.size() - 1, order);
    append(value, order, &stores_.back());
    return true;
  }
  bool compare_exchange_weak(T& expected, T value,
                             std::memory_order order = std::memory_order_seq_cst) {
    Execution* const execution = Execution::current();
    if (execution != nullptr && execution->once_in(8)) {
      expected = load(order_of_failure(order));
      return false;
    }
    return compare_exchange_strong(expected, value, order);
  }

 private:
  struct Store {
    T value;
    VectorClock released;  // what a load that acquires it learns
    bool sequential;
    std::array<std::uint32_t, kMostThreads> seen;  // by each thread, first at this time; 0: never
  };
  static constexpr std::size_t kMostStores = 8;

  /// Any store that is not older than one that this thread knows of.
  std::size_t choose_store(Execution& execution, std::memory_order order) const {
    const VectorClock& clock = execution.clock();
    std::size_t oldest = stores_.size() - 1;
    while (oldest > 0 && !is_known(stores_[oldest], clock) &&
           !(order == std::memory_order_seq_cst && stores_[oldest].sequential))
      --oldest;
    const std::size_t choices = stores_.size() - oldest;
    return execution.once_in(2) ? stores_.size() - 1 : oldest + execution.choose(choices);
  }

  static bool is_known(const Store& store, const VectorClock& clock) {
    for (std::size_t i = 0; i < kMostThreads; ++i)
      if (store.seen[i] != 0 && clock.has_seen(i, store.seen[i])) return true;
    return false;
  }

  T see(std::size_t i, std::memory_order order) const {
    Store& store = stores_[i];
    if (Execution* const execution = Execution::current()) {
      execution->note(uses_, Access::read);
      const std::uint32_t now = execution->tick();
      std::uint32_t& seen = store.seen[execution->self()];
      if (seen == 0) seen = now;
      if (acquires(order)) execution->clock().join(store.released);
    }
    return store.value;
  }

  /// `replaced`: the store that a read-modify-write read; it carries on what that one released.
  void append(T value, std::memory_order order, const Store* replaced) {
    Store store{value, {}, order == std::memory_order_seq_cst, {}};
    if (replaced != nullptr) store.released = replaced->released;
    if (Execution* const execution = Execution::current()) {
      execution->note(uses_, Access::read);
      store.seen[execution->self()] = execution->tick();
      if (releases(order)) store.released.join(execution->clock());
    }
    if (stores_.size() == kMostStores) stores_.erase(stores_.begin());
    stores_.push_back(store);
  }

  template <class Change>
  T modify(Change change, std::memory_order order) {
    if (Execution* const execution = Execution::current()) execution->step();
    const T old = see(stores_.size() - 1, order);
    const Store replaced = stores_.back();
    append(change(old), order, &replaced);
    return old;
  }

  mutable std::vector<Store> stores_;  // in modification order
  mutable Accesses uses_;
};

class AtomicFlag {
 public:
  bool test_and_set(std::memory_order order = std::memory_order_seq_cst) {
    return set_.exchange(true, order);
  }
  void clear(std::memory_order order = std::memory_order_seq_cst) { set_.store(false, order); }
  bool test(std::memory_order order = std::memory_order_seq_cst) const { return set_.load(order); }

 private:
  Atomic<bool> set_{false};
};

/// Data that is not atomic: two accesses, one of them a write, with no order between them, end the
/// execution. Construction and destruction are writes.
template <class T>
class Plain {
 public:
  Plain(T value = T()) : value_(std::move(value)) { note(Access::write); }  // NOLINT: as a T
  Plain(const Plain& other) : value_(other.read()) { note(Access::write); }
  Plain& operator=(const Plain& other) {
    T value = other.read();
    note(Access::write);
    value_ = std::move(value);
    return *this;
  }
  ~Plain() { note(Access::write); }

  operator T() const { return read(); }  // NOLINT: as a T

 private:
  const T& read() const {
    note(Access::read);
    return value_;
  }
  void note(Access access) const {
    if (Execution* const execution = Execution::current()) execution->note(accesses_, access);
  }

  T value_;
  mutable Accesses accesses_;
};

/// The same for data that comes and goes at a fixed place: also what was there before is minded.
/// (Not for the heap, where the allocator orders the end of one object before its successor.)
template <class T>
class InPlace {
 public:
  InPlace(T value = T()) : value_(std::move(value)) { note(Access::write); }  // NOLINT: as a T
  InPlace(const InPlace& other) : value_(other) { note(Access::write); }
  InPlace& operator=(const InPlace&) = delete;
  ~InPlace() { note(Access::write); }

  operator T() const {  // NOLINT: as a T
    note(Access::read);
    return value_;
  }

 private:
  void note(Access access) const {
    if (Execution* const execution = Execution::current())
      execution->note(execution->accesses_of(this), access);
  }

  T value_;
};

}  // namespace penstock::test::weak
