// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/observe/name_number.hpp>
#include <penstock/detail/pipeline/thread_placement.hpp>
#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/detail/sync/pending_error.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/error.hpp>
#include <penstock/markers.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/readback.hpp>
#include <stop_token>
#include <string>
#include <thread>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A ring of values: the thread that pushes adds at the head, the thread that calls back removes at
/// the tail.
class ReadbackLine final : public AnyReadback {
 public:
  ReadbackLine(std::size_t slots, std::size_t largest, std::size_t value_bytes, CallbackTable table,
               const Placement& placement)
      : largest_(largest),
        value_bytes_(value_bytes),
        table_(table),
        placed_(choose_placement(placement)) {
    {
      const BoundHere near(placed_.cpus);
      host_ = pool_.acquire(place_of(slots));
    }
    snapshots_ = DeviceArena(1, place_of(slots)).acquire(copies_.get());
    entries_.resize(slots);
    thread_ = std::jthread([this](const std::stop_token& stop) { call_back_until(stop); });
  }
  ReadbackLine(const ReadbackLine&) = delete;
  ReadbackLine& operator=(const ReadbackLine&) = delete;

  void push(const void* device, std::size_t count, cudaStream_t stream, void* callback) override {
    require_other_thread("Readback::push");
    if (count > largest_)
      throw std::invalid_argument("Readback::push: " + std::to_string(count) +
                                  " values, and there is room for " + std::to_string(largest_));
    const std::lock_guard one_at_a_time(push_mutex_);
    errors_.throw_error();
    {
      std::unique_lock lock(mutex_);
      delivered_one_.wait(lock, [this] { return pushed_ - delivered_ < entries_.size(); });
    }
    // Only this thread changes pushed_, and no other thread uses the entry at the head.
    const std::size_t index = pushed_ % entries_.size();
    entries_[index].count = count;
    queue_copies(index, device, stream);
    table_.keep(table_.callbacks, index, callback);
    {
      const std::lock_guard lock(mutex_);
      ++pushed_;
    }
    pushed_one_.notify_one();
  }

  void drain() override {
    require_other_thread("Readback::drain");
    {
      std::unique_lock lock(mutex_);
      delivered_one_.wait(lock, [this, last = pushed_] { return delivered_ >= last; });
    }
    errors_.throw_error();
  }

  bool close() noexcept override {
    if (!process_.is_this()) return false;
    if (std::this_thread::get_id() != thread_.get_id()) return true;
    abandoned_ = true;
    // Other threads hear of it when the callback has returned: when a process ends it never does.
    for (std::uint64_t next = delivered_ + 1;; ++next) {
      {
        const std::lock_guard lock(mutex_);
        if (next >= pushed_) break;
      }
      try {
        call_back(next, CaptureModeGuard());
      } catch (...) {  // Errors are lost.
      }
    }
    thread_.detach();
    return false;
  }

 private:
  struct Entry {
    Event written, copied;
    std::size_t count = 0;
  };

  std::size_t place_of(std::size_t index) const { return index * largest_ * value_bytes_; }

  void require_other_thread(const char* call) const {
    if (std::this_thread::get_id() == thread_.get_id())
      throw std::logic_error(std::string(call) + ": called by a callback, which it would wait for");
  }

  /// The callback of the entry's previous value has returned: no device work uses the entry.
  void queue_copies(std::size_t index, const void* device, cudaStream_t stream) {
    constexpr const char* kCall = "Readback::push";
    const ResolvedStream pushed_on = resolve_usable(stream, kCall, device_);
    Entry& entry = entries_[index];
    std::byte* const snapshot = snapshots_.data() + place_of(index);
    const std::size_t bytes = entry.count * value_bytes_;
    try {
      check(cudaMemcpyAsync(snapshot, device, bytes, cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpyAsync", bytes);
      entry.written.record(stream);
      entry.written.make_wait(copies_.get());
      check(cudaMemcpyAsync(host_.data() + place_of(index), snapshot, bytes, cudaMemcpyDeviceToHost,
                            copies_.get()),
            "cudaMemcpyAsync", bytes);
      entry.copied.record(copies_.get());
    } catch (...) {
      // Work that is queued already must be done before the next push to this entry.
      pushed_on.wait_on_host();
      ResolvedStream{copies_.get(), device_}.wait_on_host();
      throw;
    }
  }

  void call_back_until(const std::stop_token& stop) {
    markers::name_this_thread("penstock readback");
    placed_.cpus.bind_this_thread();
    const CaptureModeGuard capture_mode;  // Captures on other threads would forbid event queries.
    cudaSetDevice(device_);
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (!pushed_one_.wait(lock, stop, [this] { return delivered_ < pushed_; })) return;
      }
      std::exception_ptr error;
      try {
        call_back(delivered_, capture_mode);
      } catch (...) {
        error = std::current_exception();
      }
      if (abandoned_)
        std::fputs(
            "penstock: a Readback was destroyed by a callback of its own, which returns into it: "
            "its memory is never freed. Destroy it where results are pushed\n",
            stderr);
      if (error) errors_.set(std::move(error));
      {
        const std::lock_guard lock(mutex_);
        delivered_ = abandoned_ ? pushed_ : delivered_ + 1;
      }
      delivered_one_.notify_all();
      if (abandoned_) return;
    }
  }

  void call_back(std::uint64_t number, const CaptureModeGuard& guard) {
    const std::size_t index = number % entries_.size();
    try {
      wait_for(entries_[index].copied, guard);
    } catch (...) {
      // The copy may be under way all the same, and the entry is about to be used again.
      cudaEventSynchronize(entries_[index].copied.get());
      table_.call(table_.callbacks, index, nullptr, 0);
      throw;
    }
    const ScopedRange range(markers::readback, number);
    table_.call(table_.callbacks, index, host_.data() + place_of(index), entries_[index].count);
  }

  /// Polls with increasing sleeps. cudaEventSynchronize would occupy a processor or block inside
  /// CUDA, and neither would end if the stream waits for something that a callback does.
  static void wait_for(const Event& event, const CaptureModeGuard& guard) {
    constexpr std::chrono::microseconds kLongest(200);
    std::chrono::microseconds pause(5);
    cudaError_t status = cudaSuccess;
    while ((status = query(event.get(), guard)) == cudaErrorNotReady) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongest);
    }
    check(status, "cudaEventQuery");
  }

  const OwnerProcess process_;
  const int device_ = current_device();
  const std::size_t largest_;  // values of an entry
  const std::size_t value_bytes_;
  const CallbackTable table_;
  const ThreadPlacement placed_;
  Stream copies_;
  const NameNumber<ReadbackLine> number_;
  markers::StreamName copies_name_{copies_.get(), number_.name("penstock readback").c_str()};
  PinnedPool pool_;
  PinnedBlock host_;      // room for each entry
  DeviceSlot snapshots_;  // the same, on the device
  std::vector<Entry> entries_;

  std::mutex push_mutex_;  // One push at a time; held across calls of CUDA's.
  std::mutex mutex_;
  std::condition_variable_any pushed_one_;
  std::condition_variable delivered_one_;
  std::uint64_t pushed_ = 0, delivered_ = 0;
  PendingError errors_;     // the first since it was thrown
  bool abandoned_ = false;  // by the thread that calls back: a callback has destroyed this

  std::jthread thread_;  // last: joined before the other members are destroyed
};

PENSTOCK_INLINE std::unique_ptr<AnyReadback> make_readback(std::size_t slots, std::size_t largest,
                                                           std::size_t value_bytes,
                                                           CallbackTable table,
                                                           const Placement& placement) {
  if (slots == 0) throw std::invalid_argument("Readback: slots is 0, must be at least 1");
  if (largest == 0) throw std::invalid_argument("Readback: largest is 0, must be at least 1");
  constexpr std::size_t kMost = std::size_t{1} << 48;  // bytes: addresses of today's machines
  if (slots > kMost / value_bytes / largest)
    throw std::invalid_argument("Readback: " + std::to_string(slots) + " slots of " +
                                std::to_string(largest) + " values of " +
                                std::to_string(value_bytes) +
                                " bytes are larger than any memory: use fewer or smaller ones");
  return std::make_unique<ReadbackLine>(slots, largest, value_bytes, table, placement);
}

}  // namespace penstock::detail
