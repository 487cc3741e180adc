// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceClock: when, on the host's clock, an event was reached on the device. It now and then
// records an event on a stream of its own, which has no other work: so the device reaches it at
// once, and the host's time at the record is the device's time, but for the latency. Nothing here
// blocks.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <penstock/cuda.hpp>

namespace penstock::detail {

/// The time from one timed event to another on the device; negative if they were reached in the
/// other order; nullopt if one is not reached yet, or CUDA failed. Allowed during stream captures;
/// leaves no error behind.
inline std::optional<std::chrono::nanoseconds> elapsed(cudaEvent_t from, cudaEvent_t to) noexcept {
  const CaptureModeGuard guard;
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, from, to) != cudaSuccess) {
    cudaGetLastError();
    return std::nullopt;
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e6 * double{milliseconds}));
}

class DeviceClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::nanoseconds;

  /// For the current device.
  DeviceClock() { set(Clock::now()); }

  /// By one thread at a time: sets the clock, at most once in kPeriod. Throws CudaError.
  void set(Clock::time_point now) {
    if (set_.load(std::memory_order_acquire) || now - set_at_ < kPeriod) return;
    set_at_ = now;
    next().event.record(stream_.get());
    next().at = Clock::now();  // After the call: the nearest to when the device gets to it.
    set_.store(true, std::memory_order_release);
  }

  /// By one thread at a time, another one maybe: from `time` on the host to `event` on the device;
  /// nullopt: the event is not reached yet, or the clock was never set.
  std::optional<Nanoseconds> since(Clock::time_point time, cudaEvent_t event) noexcept {
    take_setting();
    if (!is_set_) return std::nullopt;
    const auto after = elapsed(best().event.get(), event);
    if (!after) return std::nullopt;
    return *after - std::chrono::duration_cast<Nanoseconds>(time - best().at);
  }

 private:
  static constexpr std::chrono::milliseconds kPeriod{10};
  static constexpr std::int64_t kDrift = 10'000;  // Clocks differ by less than one in so many.

  struct Setting {
    Event event{cudaEventDefault};
    Clock::time_point at{};
  };

  Setting& best() { return settings_[best_.load(std::memory_order_relaxed)]; }
  Setting& next() { return settings_[1 - best_.load(std::memory_order_relaxed)]; }

  /// The setting with the shortest latency is the best, as far as it is not outdated.
  void take_setting() noexcept {
    if (!set_.load(std::memory_order_acquire)) return;
    if (!elapsed(next().event.get(), next().event.get())) return;  // not reached yet
    bool is_better = !is_set_;
    if (is_set_)
      if (const auto on_device = elapsed(best().event.get(), next().event.get())) {
        const auto on_host = std::chrono::duration_cast<Nanoseconds>(next().at - best().at);
        is_better = *on_device - on_host < on_host / kDrift;
      }
    if (is_better) best_.store(1 - best_.load(std::memory_order_relaxed));
    is_set_ = true;
    set_.store(false, std::memory_order_release);
  }

  Stream stream_;
  std::array<Setting, 2> settings_;
  std::atomic<std::size_t> best_{1};
  std::atomic<bool> set_{false};  // settings_[1 - best_] is, and was not taken yet
  Clock::time_point set_at_{};    // by the thread that sets
  bool is_set_ = false;           // by the thread that takes
};

}  // namespace penstock::detail
