// SPDX-License-Identifier: Apache-2.0
#pragma once

// in_order(): threads make samples, and the calling thread uses them in the order of their numbers.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <penstock/store.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace pack {

/// The result for one sample.
struct Made {
  std::vector<std::byte> memory;
  std::span<const std::byte> bytes;  // may point into `memory`
  std::int32_t label = -1;
  std::string remark;                           // a message about the sample, or empty
  std::optional<penstock::StoreError> failure;  // the reason why it cannot be read
};

class OrderedWork {
 public:
  /// Makes samples `first` to `end` - 1. At most four samples per thread are made in advance.
  OrderedWork(std::uint64_t first, std::uint64_t end, std::size_t threads)
      : next_(first), taken_(first), end_(end), slots_(4 * threads) {}

  /// Runs on a thread: makes samples until none is left. If `make(number, made)` throws, take()
  /// rethrows the exception when it reaches this sample.
  template <class Make>
  void work(Make make) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return next_ >= end_ || next_ - taken_ < slots_.size(); });
      if (next_ >= end_) return;
      const std::uint64_t number = next_++;
      Slot& slot = slots_[number % slots_.size()];
      lock.unlock();
      try {
        make(number, slot.made);
      } catch (...) {
        slot.failure = std::current_exception();
      }
      lock.lock();
      slot.is_ready = true;
      changed_.notify_all();
    }
  }

  /// Waits for sample `number` and calls `use(made)`. Call it for each number, in order.
  template <class Use>
  void take(std::uint64_t number, Use use) {
    Slot& slot = slots_[number % slots_.size()];
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return slot.is_ready; });
    }
    if (slot.failure) std::rethrow_exception(slot.failure);
    use(slot.made);
    const std::scoped_lock lock(mutex_);
    slot.is_ready = false;
    ++taken_;
    changed_.notify_all();
  }

  /// Threads finish their current sample and begin no other.
  void stop() {
    const std::scoped_lock lock(mutex_);
    next_ = end_;
    changed_.notify_all();
  }

 private:
  struct Slot {
    Made made;
    std::exception_ptr failure;
    bool is_ready = false;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_, taken_;
  const std::uint64_t end_;
  std::vector<Slot> slots_;
};

/// `make_worker()` is called on each thread and returns its make(number, made). `use(number, made)`
/// is called on this thread and returns whether to continue. Rethrows an exception of make when its
/// sample is next.
template <class MakeWorker, class Use>
void in_order(std::uint64_t first, std::uint64_t end, std::size_t threads,
              const MakeWorker& make_worker, const Use& use) {
  OrderedWork work(first, end, threads);
  std::vector<std::jthread> workers;
  struct Join {
    std::vector<std::jthread>& workers;
    OrderedWork& work;
    ~Join() {
      work.stop();
      workers.clear();
    }
  } join{workers, work};
  for (std::size_t i = 0; i < threads; ++i) workers.emplace_back([&] { work.work(make_worker()); });
  bool go_on = true;
  for (std::uint64_t number = first; number < end && go_on; ++number)
    work.take(number, [&](const Made& made) { go_on = use(number, made); });
}

}  // namespace pack
