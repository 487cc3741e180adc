// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/process.hpp>
#include <penstock/device_arena.hpp>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace penstock::detail {

/// Owns the memory until the arena and every slot are gone.
class DeviceArenaCore {
 public:
  DeviceArenaCore(std::size_t slots, std::size_t slot_bytes)
      : device_(current_device()), slot_bytes_(slot_bytes), stride_(stride(slots, slot_bytes)) {
    const CaptureModeGuard guard;
    void* memory = nullptr;
    check(cudaMalloc(&memory, slots * stride_), "cudaMalloc", slots * stride_);
    memory_.reset(static_cast<std::byte*>(memory));
    readers_.resize(slots);
    free_.reserve(slots);
    for (std::size_t i = 0; i < slots; ++i) {
      readers_[i].events.emplace_back();
      free_.push_back(i);
    }
  }
  DeviceArenaCore(const DeviceArenaCore&) = delete;
  DeviceArenaCore& operator=(const DeviceArenaCore&) = delete;

  /// Freed after the device has stopped reading it. Errors have nowhere to go.
  ~DeviceArenaCore() {
    if (!process_.is_this()) {
      leak(std::move(memory_));
      leak(std::move(readers_));
      return;
    }
    const CaptureModeGuard guard;
    for (const Readers& readers : readers_)
      for (std::size_t i = 0; i < readers.recorded; ++i)
        cudaEventSynchronize(readers.events[i].get());
    memory_.reset();
  }

  /// The free slot, after waits for its readers were put on `writer`.
  std::optional<std::size_t> try_acquire(cudaStream_t writer) {
    std::unique_lock lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const std::size_t index = take_oldest();
    lock.unlock();
    wait_for_readers(index, writer);
    return index;
  }

  std::size_t acquire(cudaStream_t writer) {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return !free_.empty() || lost_ == readers_.size(); });
    if (free_.empty()) lost_to_.raise();
    const std::size_t index = take_oldest();
    lock.unlock();
    wait_for_readers(index, writer);
    return index;
  }

  /// As acquire; nullopt: stop was requested.
  std::optional<std::size_t> acquire(cudaStream_t writer, const std::stop_token& stop) {
    const std::stop_callback on_stop(stop, [this] {
      { const std::lock_guard lock(mutex_); }  // Nobody is between a look and a wait.
      returned_.notify_all();
    });
    std::unique_lock lock(mutex_);
    returned_.wait(
        lock, [&] { return !free_.empty() || lost_ == readers_.size() || stop.stop_requested(); });
    if (stop.stop_requested()) return std::nullopt;
    if (free_.empty()) lost_to_.raise();
    const std::size_t index = take_oldest();
    lock.unlock();
    wait_for_readers(index, writer);
    return index;
  }

  void release_after(std::size_t index, std::span<const cudaStream_t> streams) {
    if (!process_.is_this()) return;
    try {
      record(readers_[index], streams);
      if (checks_) mark_released(index, streams);
    } catch (...) {
      if (wait_on_host(streams))
        give_back(index);
      else
        lose(SavedError::current());
      throw;
    }
    give_back(index);
  }

  std::byte* data(std::size_t index) const { return memory_.get() + index * stride_; }
  std::size_t slots() const { return readers_.size(); }
  std::size_t slot_bytes() const { return slot_bytes_; }
  int device() const { return device_; }

  std::size_t free_slots() const {
    const std::lock_guard lock(mutex_);
    return free_.size();
  }
  std::size_t lost_slots() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  void require_slot() const {
    const std::lock_guard lock(mutex_);
    if (lost_ == readers_.size()) lost_to_.raise();
  }

 private:
  /// The streams that read a slot last: `recorded` of the events mark the ends of their reads.
  /// There are as many events as a release has ever named streams. Only the slot's holder touches
  /// them.
  struct Readers {
    std::vector<Event> events;
    std::size_t recorded = 0;
  };

  struct Free {
    void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
  };

  static std::size_t stride(std::size_t slots, std::size_t slot_bytes) {
    constexpr std::size_t kAlignment = 512;
    if (slots == 0 || slot_bytes == 0)
      throw std::invalid_argument("a device arena of " + std::to_string(slots) + " slots of " +
                                  std::to_string(slot_bytes) + " bytes");
    return (slot_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  std::size_t take_oldest() {
    const std::size_t index = free_.front();
    free_.erase(free_.begin());  // A handful of slots.
    return index;
  }

  void wait_for_readers(std::size_t index, cudaStream_t writer) {
    try {
      const Readers& readers = readers_[index];
      for (std::size_t i = 0; i < readers.recorded; ++i) readers.events[i].make_wait(writer);
    } catch (...) {
      give_back(index);  // Its readers are still on record.
      throw;
    }
  }

  void record(Readers& readers, std::span<const cudaStream_t> streams) {
    readers.recorded = 0;
    for (const cudaStream_t stream : streams) {
      if (readers.recorded == readers.events.size()) {
        const DeviceGuard guard(device_);
        readers.events.emplace_back();
      }
      readers.events[readers.recorded].record(stream);
      ++readers.recorded;
    }
  }

  /// With PENSTOCK_CHECKS, whoever reads the slot after this reads poison.
  void mark_released(std::size_t index, std::span<const cudaStream_t> streams) {
    const cudaStream_t first = streams.front();
    Readers& readers = readers_[index];
    for (std::size_t i = 1; i < readers.recorded; ++i) readers.events[i].make_wait(first);
    check(cudaMemsetAsync(data(index), poison, slot_bytes_, first), "cudaMemsetAsync", slot_bytes_);
    readers.events.front().record(first);
  }

  static bool wait_on_host(std::span<const cudaStream_t> streams) noexcept {
    bool done = true;
    for (const cudaStream_t stream : streams) done &= cudaStreamSynchronize(stream) == cudaSuccess;
    return done;
  }

  void give_back(std::size_t index) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(index);
    }
    returned_.notify_one();
  }

  void lose(SavedError error) {
    {
      const std::lock_guard lock(mutex_);
      ++lost_;
      lost_to_ = std::move(error);
    }
    returned_.notify_all();
  }

  const OwnerProcess process_;
  const bool checks_ = checks();
  int device_;
  std::size_t slot_bytes_, stride_;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<Readers> readers_;

  mutable std::mutex mutex_;  // Guards what follows. Never held across a call of CUDA's.
  std::condition_variable returned_;
  std::vector<std::size_t> free_;  // The first has been free for longest.
  std::size_t lost_ = 0;
  SavedError lost_to_;  // the last of them
};

}  // namespace penstock::detail

namespace penstock {

PENSTOCK_INLINE std::byte* DeviceSlot::data() const noexcept {
  return core_ == nullptr ? nullptr : core_->data(index_);
}

PENSTOCK_INLINE void DeviceSlot::release_after(std::span<const cudaStream_t> streams) {
  if (core_ == nullptr) return;
  const auto core = std::move(core_);
  core->release_after(index_, streams);
}

PENSTOCK_INLINE void DeviceSlot::release() noexcept {
  try {
    release_after(writer_);
  } catch (...) {  // Told by the writer's next call on that stream; the arena stays consistent.
  }
}

PENSTOCK_INLINE DeviceArena::DeviceArena(std::size_t slots, std::size_t slot_bytes)
    : core_(std::make_shared<detail::DeviceArenaCore>(slots, slot_bytes)) {}

PENSTOCK_INLINE DeviceSlot DeviceArena::acquire(cudaStream_t writer) {
  return {core_, core_->acquire(writer), writer};
}

PENSTOCK_INLINE std::optional<DeviceSlot> DeviceArena::acquire(cudaStream_t writer,
                                                               const std::stop_token& stop) {
  const auto index = core_->acquire(writer, stop);
  if (!index) return std::nullopt;
  return DeviceSlot(core_, *index, writer);
}

PENSTOCK_INLINE std::optional<DeviceSlot> DeviceArena::try_acquire(cudaStream_t writer) {
  const auto index = core_->try_acquire(writer);
  if (!index) return std::nullopt;
  return DeviceSlot(core_, *index, writer);
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
  return core_->free_slots();
}
PENSTOCK_INLINE std::size_t DeviceArena::lost_slots() const {
  return core_->lost_slots();
}
PENSTOCK_INLINE void DeviceArena::require_slot() const {
  core_->require_slot();
}

}  // namespace penstock
