// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/device_allocation.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/detail/sync/time_out.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/error.hpp>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Owns the memory until the arena and every slot are gone.
class DeviceArenaCore {
 public:
  DeviceArenaCore(std::size_t slots, std::size_t slot_bytes, const Upstream& upstream,
                  std::chrono::milliseconds time_out)
      : device_(current_device()),
        slot_bytes_(slot_bytes),
        stride_(stride(slots, slot_bytes)),
        time_out_(time_out),
        memory_(slots * stride_, upstream) {
    require_time_out("DeviceArena: timeout", time_out);
    const CaptureModeGuard guard;
    slots_.resize(slots);
    free_.reserve(slots);
    for (std::size_t i = 0; i < slots; ++i) {
      slots_[i].events.emplace_back();
      slots_[i].readers.reserve(8);
      free_.push_back(i);
    }
  }
  DeviceArenaCore(const DeviceArenaCore&) = delete;
  DeviceArenaCore& operator=(const DeviceArenaCore&) = delete;

  /// Frees the memory after the device has stopped reading it, and ignores errors. A slot that is
  /// still parked has no events of its readers: see DeviceAllocation::free.
  ~DeviceArenaCore() {
    if (!process_.is_this()) {
      leak(std::move(memory_));
      leak(std::move(slots_));
      return;
    }
    const CaptureModeGuard guard;
    try {
      std::unique_lock lock(mutex_);
      retry_parked(lock);
    } catch (...) {
    }
    for (const Slot& slot : slots_)
      for (std::size_t i = 0; i < slot.recorded; ++i) cudaEventSynchronize(slot.events[i].get());
    memory_.free(lost_ + parked_ == 0);
  }

  /// Returns a free slot, or nullopt if there is none now. Makes `writer`, which this thread has
  /// resolved, wait for the readers of the slot.
  std::optional<std::size_t> try_acquire(const ResolvedStream& writer) {
    std::unique_lock lock(mutex_);
    retry_parked(lock);
    if (free_.empty()) return std::nullopt;
    return take_oldest(lock, writer);
  }

  /// Like try_acquire, but waits for a slot. Returns nullopt if stop was requested. Throws after
  /// the time-out.
  std::optional<std::size_t> acquire(const ResolvedStream& writer, const std::stop_token& stop,
                                     std::chrono::milliseconds time_out) {
    const std::stop_callback on_stop(stop, [this] {
      {
        const std::lock_guard lock(mutex_);
      }  // A thread that checked `stop` before is now
         // waiting.
      returned_.notify_all();
    });
    std::unique_lock lock(mutex_);
    retry_parked(lock);
    if (free_.empty() && !wait_for_slot(lock, stop, time_out)) return std::nullopt;
    return take_oldest(lock, writer);
  }

  /// Sets the streams of the slot's readers. The slot keeps them until a release succeeds, since a
  /// stream that is rejected may also hold work that reads the slot.
  void set_readers(std::size_t index, std::span<const ResolvedStream> streams) {
    slots_[index].readers.assign(streams.begin(), streams.end());
  }
  void set_readers(std::size_t index, std::span<const cudaStream_t> streams, cudaStream_t zero) {
    auto& readers = slots_[index].readers;
    readers.clear();
    for (const cudaStream_t stream : streams)
      readers.push_back({stream == nullptr ? zero : stream, device_});
    for (ResolvedStream& reader : readers) reader = resolve(reader.handle, device_);
    for (const ResolvedStream& reader : readers)
      require_device(reader, device_, "DeviceSlot::release_after");
  }
  void add_writer(std::size_t index) { slots_[index].readers.push_back(slots_[index].writer); }

  /// Releases the slot after the work that is queued on its readers' streams. Returns false,
  /// without any effect, if one of these streams is being captured.
  bool try_release(std::size_t index) {
    if (!process_.is_this()) return true;
    try {
      if (!record(slots_[index])) return false;
      if (checks_) fill_with_poison(index);
    } catch (...) {
      if (wait_on_host(slots_[index]))
        give_back(index);
      else
        lose(index, SavedError::current());
      throw;
    }
    give_back(index);
    return true;
  }

  /// Keeps a slot for which try_release returned false until the capture has ended.
  void park(std::size_t index) {
    {
      const std::lock_guard lock(mutex_);
      slots_[index].state = Slot::parked;
      ++parked_;
    }
    returned_.notify_all();  // Waiting threads must poll from now on.
  }

  std::byte* data(std::size_t index) const { return memory_.data() + index * stride_; }
  std::size_t slots() const { return slots_.size(); }
  std::size_t slot_bytes() const { return slot_bytes_; }
  int device() const { return device_; }
  std::chrono::milliseconds time_out() const { return time_out_; }

  struct Counts {
    std::size_t free, lost, parked;
  };
  Counts counts() const {
    const std::lock_guard lock(mutex_);
    return {free_.size(), lost_, parked_};
  }
  void require_slot() {
    std::unique_lock lock(mutex_);
    retry_parked(lock);
    require_slot_locked();
  }

 private:
  /// Only the holder of the slot uses these members, except `state`.
  struct Slot {
    ResolvedStream writer;
    std::vector<ResolvedStream> readers;
    std::vector<Event> events;  // the first `recorded` events mark the ends of the readers
    std::size_t recorded = 0;
    enum {
      in_use,
      parked,
      retried
    } state = in_use;  // guarded by mutex_; in_use also stands for a
                       // free slot
  };

  static std::size_t stride(std::size_t slots, std::size_t slot_bytes) {
    constexpr std::size_t kAlignment = 512;
    if (slots == 0 || slot_bytes == 0)
      throw std::invalid_argument("a device arena of " + std::to_string(slots) + " slots of " +
                                  std::to_string(slot_bytes) + " bytes");
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max() / 2;
    if (slot_bytes > kMost / slots - kAlignment)
      throw std::invalid_argument("a device arena of " + std::to_string(slots) + " slots of " +
                                  std::to_string(slot_bytes) +
                                  " bytes is larger than any memory: fewer or smaller ones");
    return (slot_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// Waits until there is a free slot. Returns false if stop was requested. Throws after the
  /// time-out. The error cannot name the holders of the slots, since another thread may release a
  /// slot than the one that acquired it.
  bool wait_for_slot(std::unique_lock<std::mutex>& lock, const std::stop_token& stop,
                     std::chrono::milliseconds time_out) {
    for (TimeOut left(time_out); free_.empty(); retry_parked(lock)) {
      if (stop.stop_requested()) return false;
      require_slot_locked();
      if (left.over()) throw timed_out();
      constexpr std::chrono::milliseconds kPoll(1);  // The end of a capture wakes no thread.
      auto until = left.next_step();
      if (parked_ != 0) until = std::min(until, TimeOut::Clock::now() + kPoll);
      if (until == TimeOut::Clock::time_point::max())
        returned_.wait(lock);
      else
        returned_.wait_until(lock, until);
    }
    return true;
  }

  PoolExhausted timed_out() const {
    const std::size_t used = slots_.size() - lost_ - parked_;
    std::string why = "DeviceArena::acquire: no slot came back in " +
                      std::to_string(time_out_.count()) + " ms, " + std::to_string(used) + " of " +
                      std::to_string(slots_.size()) + " are held";
    if (parked_ != 0) why += ", " + std::to_string(parked_) + " wait for the end of a capture";
    if (lost_ != 0) why += ", " + std::to_string(lost_) + " are lost";
    return {why + ": release slots earlier, make more of them, or use try_acquire", slot_bytes_,
            slots_.size() * slot_bytes_, slots_.size() * slot_bytes_};
  }

  std::size_t take_oldest(std::unique_lock<std::mutex>& lock, const ResolvedStream& writer) {
    const std::size_t index = free_.front();
    free_.erase(free_.begin());  // There are only a few slots.
    lock.unlock();
    Slot& slot = slots_[index];
    try {
      for (std::size_t i = 0; i < slot.recorded; ++i) slot.events[i].make_wait(writer.handle);
    } catch (...) {
      give_back(index);  // The events of the readers are still valid.
      throw;
    }
    slot.writer = writer;
    slot.readers.clear();
    return index;
  }

  bool record(Slot& slot) {
    slot.recorded = 0;
    for (const ResolvedStream& reader : slot.readers) {
      if (slot.recorded == slot.events.size()) {
        const DeviceGuard guard(device_);
        slot.events.emplace_back();
      }
      if (!reader.try_record(slot.events[slot.recorded])) return false;
      ++slot.recorded;
    }
    return true;
  }

  /// With PENSTOCK_CHECKS: queues a fill of the slot with `poison` after its readers.
  void fill_with_poison(std::size_t index) {
    Slot& slot = slots_[index];
    slot.readers.front().with_handle([&](cudaStream_t first) {
      const DeviceGuard guard(device_);
      for (std::size_t i = 1; i < slot.recorded; ++i) slot.events[i].make_wait(first);
      check(cudaMemsetAsync(data(index), poison, slot_bytes_, first), "cudaMemsetAsync",
            slot_bytes_);
      slot.events.front().record(first);
    });
  }

  static bool wait_on_host(const Slot& slot) noexcept {
    bool done = true;
    for (const ResolvedStream& reader : slot.readers) done &= reader.wait_on_host();
    return done;
  }

  /// Releases the parked slots whose captures have ended. Unlocks `lock` while it does so.
  void retry_parked(std::unique_lock<std::mutex>& lock) {
    if (parked_ == 0) return;
    lock.unlock();
    const std::lock_guard one_at_a_time(retry_mutex_);
    lock.lock();
    for (std::size_t index = 0; parked_ != 0 && index < slots_.size(); ++index) {
      if (slots_[index].state != Slot::parked) continue;
      slots_[index].state = Slot::retried;
      lock.unlock();
      const bool released = try_release(index);
      lock.lock();
      if (!released) slots_[index].state = Slot::parked;
    }
  }
  void unpark(std::size_t index) {
    if (std::exchange(slots_[index].state, Slot::in_use) == Slot::retried) --parked_;
  }

  void require_slot_locked() const {
    if (lost_ == slots_.size()) lost_to_.raise();
    if (lost_ + parked_ == slots_.size())
      throw std::logic_error(
          "every device slot was given up while a stream that uses it was being captured into a "
          "graph: end the capture first, and end leases outside of captures");
  }

  void give_back(std::size_t index) {
    {
      const std::lock_guard lock(mutex_);
      unpark(index);
      free_.push_back(index);
    }
    returned_.notify_one();
  }

  void lose(std::size_t index, SavedError error) {
    {
      const std::lock_guard lock(mutex_);
      unpark(index);
      ++lost_;
      lost_to_ = std::move(error);
    }
    returned_.notify_all();
  }

  const OwnerProcess process_;
  const bool checks_ = checks();
  int device_;
  std::size_t slot_bytes_, stride_;
  std::chrono::milliseconds time_out_;
  DeviceAllocation memory_;
  std::vector<Slot> slots_;

  std::mutex retry_mutex_;    // locked before mutex_; held during CUDA calls
  mutable std::mutex mutex_;  // guards the members below; never held during a CUDA call
  std::condition_variable returned_;
  std::vector<std::size_t> free_;  // in the order of release, the oldest first
  std::size_t lost_ = 0;
  SavedError lost_to_;  // the error of the slot that was lost last
  std::size_t parked_ = 0;
};

}  // namespace penstock::detail

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE std::byte* DeviceSlot::data() const noexcept {
  return core_ == nullptr ? nullptr : core_->data(index_);
}

PENSTOCK_INLINE void DeviceSlot::release_after(std::span<const cudaStream_t> streams,
                                               cudaStream_t zero) {
  if (core_ == nullptr) return;
  core_->set_readers(index_, streams, zero);
  if (streams.empty()) core_->add_writer(index_);
  if (!try_release(false)) detail::throw_captured("DeviceSlot::release_after");
}

PENSTOCK_INLINE bool DeviceSlot::try_release_after(std::span<const detail::ResolvedStream> streams,
                                                   bool park) {
  if (core_ == nullptr) return true;
  core_->set_readers(index_, streams);
  return try_release(park);
}

/// If this throws, the slot was given back or lost, and this object is empty.
PENSTOCK_INLINE bool DeviceSlot::try_release(bool park) {
  auto core = std::move(core_);
  if (core->try_release(index_)) return true;
  if (park)
    core->park(index_);
  else
    core_ = std::move(core);
  return park;
}

PENSTOCK_INLINE void DeviceSlot::release() noexcept {
  if (core_ == nullptr) return;
  try {
    core_->add_writer(index_);
    try_release(true);
  } catch (...) {  // The next call on the writer reports the error; the arena stays consistent.
  }
}

PENSTOCK_INLINE DeviceArena::DeviceArena(std::size_t slots, std::size_t slot_bytes,
                                         const Upstream& upstream,
                                         std::chrono::milliseconds timeout)
    : core_(std::make_shared<detail::DeviceArenaCore>(slots, slot_bytes, upstream, timeout)) {}

PENSTOCK_INLINE DeviceSlot DeviceArena::acquire_named(cudaStream_t writer) {
  const auto resolved = detail::resolve_usable(writer, "DeviceArena::acquire", device());
  return {core_, core_->acquire(resolved, {}, core_->time_out()).value()};
}

PENSTOCK_INLINE DeviceSlot DeviceArena::acquire(const detail::ResolvedStream& writer,
                                                const std::stop_token& stop) {
  const auto index = core_->acquire(writer, stop, std::chrono::milliseconds::max());
  return index ? DeviceSlot(core_, *index) : DeviceSlot();
}

PENSTOCK_INLINE std::optional<DeviceSlot> DeviceArena::try_acquire_named(cudaStream_t writer) {
  DeviceSlot slot =
      try_acquire(detail::resolve_usable(writer, "DeviceArena::try_acquire", device()));
  if (!slot) return std::nullopt;
  return slot;
}

PENSTOCK_INLINE DeviceSlot DeviceArena::try_acquire(const detail::ResolvedStream& writer) {
  const auto index = core_->try_acquire(writer);
  return index ? DeviceSlot(core_, *index) : DeviceSlot();
}

PENSTOCK_INLINE std::size_t DeviceArena::slots() const noexcept {
  return core_->slots();
}
PENSTOCK_INLINE std::size_t DeviceArena::slot_bytes() const noexcept {
  return core_->slot_bytes();
}
PENSTOCK_INLINE int DeviceArena::device() const noexcept {
  return core_->device();
}
PENSTOCK_INLINE std::size_t DeviceArena::free_slots() const {
  return core_->counts().free;
}
PENSTOCK_INLINE std::size_t DeviceArena::lost_slots() const {
  return core_->counts().lost;
}
PENSTOCK_INLINE std::size_t DeviceArena::parked_slots() const {
  return core_->counts().parked;
}
PENSTOCK_INLINE void DeviceArena::require_slot() const {
  core_->require_slot();
}

}  // namespace penstock
