// SPDX-License-Identifier: Apache-2.0
#pragma once

// Readback<T>: the way back. Small results (a loss, counts, predictions) come to the host while the
// stream that made them goes on; nobody waits for them.
//
//   penstock::Readback<float> losses{64};                        // at most 64 under way
//   while (auto batch = prefetcher.next(stream)) {
//     train_step<<<132, 256, 0, stream>>>(*batch, loss);
//     losses.push(loss, stream, [](float value) { std::cout << value << '\n'; });
//   }
//   losses.drain();
//
// The route: `stream` copies the value aside, on the device, so that the next step may overwrite
// it; a stream of the readback's own takes it to pinned memory; a thread of its own calls back, in
// the order of the pushes. Readback<T[]> has arrays, each push with its own length:
//
//   penstock::Readback<float[]> logits{8, 128 * classes};        // of at most so many values
//   logits.push(device, images * classes, stream, [](std::span<const float> values) { ... });

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <penstock/cuda.hpp>
#include <penstock/detail/process.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/error.hpp>
#include <penstock/markers.hpp>
#include <penstock/pinned_pool.hpp>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {
namespace detail {
template <class T>
class ReadbackLine;
}

/// `push` and `drain` may be called from any thread but the one that calls back. In a process
/// forked from the one that made it they throw std::logic_error, and the destructor leaves
/// everything as it is.
template <class T>
class Readback {
  static constexpr bool kArrays = std::is_unbounded_array_v<T>;

 public:
  using Value = std::conditional_t<kArrays, std::remove_extent_t<T>, T>;
  /// A span is good until the callback returns.
  using Callback = std::conditional_t<kArrays, std::function<void(std::span<const Value>)>,
                                      std::function<void(T)>>;
  static_assert(std::is_trivially_copyable_v<Value>, "values are copied to the host as bytes");

  /// Allocates pinned and device memory for `slots` values, on the current device, and starts the
  /// thread. Throws std::invalid_argument for 0 slots, PoolExhausted or CudaError.
  explicit Readback(std::size_t slots) requires(!kArrays)
      : line_(std::make_unique<detail::ReadbackLine<T>>(slots, 1)) {}
  /// The same for `slots` arrays of at most `largest` values, which is not 0 either.
  Readback(std::size_t slots, std::size_t largest) requires(kArrays)
      : line_(std::make_unique<detail::ReadbackLine<T>>(slots, largest)) {}
  Readback(Readback&&) noexcept = default;
  Readback& operator=(Readback&& other) noexcept {
    Readback taken(std::move(other));
    std::swap(line_, taken.line_);
    return *this;
  }
  /// Calls back for everything that was pushed. Errors that nobody asked for are lost: drain()
  /// first.
  ~Readback() {
    if (line_ && line_->forked()) detail::leak(std::move(line_));
  }

  /// Queues: `callback` gets the value that *device has at this point of `stream`, which must be of
  /// the readback's device. Calls into CUDA do not block; waits for a callback while `slots` values
  /// are under way. Throws, and pushes nothing: what a callback threw or CUDA said since the last
  /// call, once; CudaError; std::logic_error for a stream that is being captured (push after the
  /// graph's launch), and on the thread that calls back.
  void push(const Value* device, cudaStream_t stream, Callback callback) requires(!kArrays) {
    line_->push(device, 1, stream, std::move(callback));
  }
  /// The same for `count` values from `device` on: no more cross the bus. 0 is an array too. Throws
  /// std::invalid_argument for more than the largest array has.
  void push(const Value* device, std::size_t count, cudaStream_t stream,
            Callback callback) requires(kArrays) {
    line_->push(device, count, stream, std::move(callback));
  }

  /// Waits until all that was pushed is called back. Throws the first of the errors since the last
  /// call of push or drain: a CudaError for values that the device could not deliver, whose
  /// callbacks are not called, or what a callback threw.
  void drain() { line_->drain(); }

 private:
  std::unique_ptr<detail::ReadbackLine<T>> line_;
};

namespace detail {

/// A ring of values on their way: the thread that pushes fills the head, the one that calls back
/// empties the tail.
template <class T>
class ReadbackLine {
 public:
  using Value = typename Readback<T>::Value;
  using Callback = typename Readback<T>::Callback;

  ReadbackLine(std::size_t slots, std::size_t largest);
  ReadbackLine(const ReadbackLine&) = delete;
  ReadbackLine& operator=(const ReadbackLine&) = delete;

  void push(const Value* device, std::size_t count, cudaStream_t stream, Callback callback);
  void drain();
  bool forked() const noexcept { return !process_.is_this(); }

 private:
  struct Entry {
    Event written, copied;
    std::size_t count = 0;
    Callback callback;
  };

  void require_other_thread(const char* call) const;
  std::size_t place(std::size_t index) const { return index * largest_ * sizeof(Value); }
  void queue_copies(std::size_t index, const Value* device, cudaStream_t stream);
  void throw_error();
  void call_back_until(const std::stop_token& stop);
  void call_back(std::uint64_t number);
  void wait_for(const Event& event) const;

  const OwnerProcess process_;
  const int device_ = current_device();
  const std::size_t largest_;  // values of an entry
  Stream copies_;
  markers::StreamName copies_name_{copies_.get(), "penstock readback"};
  PinnedPool pool_;
  PinnedBlock host_;      // room for each entry
  DeviceSlot snapshots_;  // the same, on the device
  std::vector<Entry> entries_;

  std::mutex push_mutex_;  // One push at a time; held across calls of CUDA's.
  std::mutex mutex_;
  std::condition_variable_any pushed_one_;
  std::condition_variable delivered_one_;
  std::uint64_t pushed_ = 0, delivered_ = 0;
  std::exception_ptr error_;  // the first since it was thrown

  std::jthread thread_;  // last: ends when all is called back, before anything else goes
};

template <class T>
ReadbackLine<T>::ReadbackLine(std::size_t slots, std::size_t largest) : largest_(largest) {
  if (slots == 0) throw std::invalid_argument("Readback: slots is 0, must be at least 1");
  if (largest == 0) throw std::invalid_argument("Readback: largest is 0, must be at least 1");
  host_ = pool_.acquire(place(slots));
  snapshots_ = DeviceArena(1, place(slots)).acquire(copies_.get());
  entries_.resize(slots);
  thread_ = std::jthread([this](const std::stop_token& stop) { call_back_until(stop); });
}

template <class T>
void ReadbackLine<T>::push(const Value* device, std::size_t count, cudaStream_t stream,
                           Callback callback) {
  process_.require("Readback::push");
  require_other_thread("Readback::push");
  if (!callback) throw std::invalid_argument("Readback::push: the callback is empty");
  if (count > largest_)
    throw std::invalid_argument("Readback::push: " + std::to_string(count) +
                                " values, and there is room for " + std::to_string(largest_));
  const std::lock_guard one_at_a_time(push_mutex_);
  throw_error();
  {
    std::unique_lock lock(mutex_);
    delivered_one_.wait(lock, [this] { return pushed_ - delivered_ < entries_.size(); });
  }
  // Only this thread moves pushed_, and the entry behind it is nobody else's.
  const std::size_t index = pushed_ % entries_.size();
  entries_[index].count = count;
  queue_copies(index, device, stream);
  entries_[index].callback = std::move(callback);
  {
    const std::lock_guard lock(mutex_);
    ++pushed_;
  }
  pushed_one_.notify_one();
}

/// The entry's former value was called back, so nothing on the device reads or writes it any more.
template <class T>
void ReadbackLine<T>::queue_copies(std::size_t index, const Value* device, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
  if (capture != cudaStreamCaptureStatusNone)
    throw std::logic_error(
        "Readback::push: the stream is being captured; push after the graph's launch");
  Entry& entry = entries_[index];
  std::byte* const snapshot = snapshots_.data() + place(index);
  const std::size_t bytes = entry.count * sizeof(Value);
  try {
    check(cudaMemcpyAsync(snapshot, device, bytes, cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync", bytes);
    entry.written.record(stream);
    entry.written.make_wait(copies_.get());
    check(cudaMemcpyAsync(host_.data() + place(index), snapshot, bytes, cudaMemcpyDeviceToHost,
                          copies_.get()),
          "cudaMemcpyAsync", bytes);
    entry.copied.record(copies_.get());
  } catch (...) {
    // What is queued already must not meet the next push to this entry.
    cudaStreamSynchronize(stream);
    cudaStreamSynchronize(copies_.get());
    throw;
  }
}

template <class T>
void ReadbackLine<T>::drain() {
  process_.require("Readback::drain");
  require_other_thread("Readback::drain");
  {
    std::unique_lock lock(mutex_);
    delivered_one_.wait(lock, [this, last = pushed_] { return delivered_ >= last; });
  }
  throw_error();
}

template <class T>
void ReadbackLine<T>::require_other_thread(const char* call) const {
  if (std::this_thread::get_id() == thread_.get_id())
    throw std::logic_error(std::string(call) + ": called by a callback, which it would wait for");
}

template <class T>
void ReadbackLine<T>::throw_error() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(error);
}

// ---- The thread that calls back -----------------------------------------------------------------

template <class T>
void ReadbackLine<T>::call_back_until(const std::stop_token& stop) {
  markers::name_this_thread("penstock readback");
  const CaptureModeGuard capture_mode;  // Captures on other threads would forbid event queries.
  cudaSetDevice(device_);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!pushed_one_.wait(lock, stop, [this] { return delivered_ < pushed_; })) return;
    }
    std::exception_ptr error;
    try {
      call_back(delivered_);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error && !error_) error_ = std::move(error);
      ++delivered_;
    }
    delivered_one_.notify_all();
  }
}

template <class T>
void ReadbackLine<T>::call_back(std::uint64_t number) {
  const std::size_t index = number % entries_.size();
  // What the callback holds ends here, on this thread, before drain() returns.
  const auto callback = std::exchange(entries_[index].callback, nullptr);
  wait_for(entries_[index].copied);
  const ScopedRange range(markers::readback, number);
  const std::byte* const values = host_.data() + place(index);
  if constexpr (std::is_unbounded_array_v<T>) {
    callback({reinterpret_cast<const Value*>(values), entries_[index].count});
  } else {
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), values, sizeof(T));
    callback(std::bit_cast<T>(bytes));
  }
}

/// Asks again and again, with longer and longer sleeps: cudaEventSynchronize would keep a processor
/// busy, or block inside CUDA, and neither ends for a stream that waits for a callback's doing.
template <class T>
void ReadbackLine<T>::wait_for(const Event& event) const {
  constexpr std::chrono::microseconds kLongest(200);
  for (std::chrono::microseconds pause(5); !event.done(); pause = std::min(2 * pause, kLongest))
    std::this_thread::sleep_for(pause);
}

}  // namespace detail
}  // namespace penstock
