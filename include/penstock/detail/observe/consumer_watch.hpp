// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerWatch: how long the consumer works and waits, measured on the host, and how many batches
// it got.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/observe/consumer_clock.hpp>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/stats.hpp>

namespace penstock::detail {

class ConsumerWatch {
 public:
  /// By the thread that takes a batch, when `queued` batches are staged.
  void count_take(std::size_t queued) { add_alone(queued_, std::uint64_t{queued}); }
  void count_delivery() {
    leased_.fetch_add(1, std::memory_order_relaxed);
    add_alone(delivered_, std::uint64_t{1});
  }
  /// Any thread.
  void count_end_of_lease() { leased_.fetch_sub(1, std::memory_order_relaxed); }
  void note_second_stream() { second_stream_.store(true, std::memory_order_relaxed); }
  std::uint64_t delivered() const { return delivered_.load(std::memory_order_relaxed); }
  std::size_t leased() const { return leased_.load(std::memory_order_relaxed); }

  /// Adds the numbers of the consumer to `stats`, whose other stages are complete.
  void add_to(Stats& stats, const DeviceSums& device, bool device_times) const {
    const std::uint64_t delivered = delivered_.load(std::memory_order_relaxed);
    const auto mean = [&](const std::atomic<std::uint64_t>& sum) {
      return static_cast<double>(sum.load(std::memory_order_relaxed)) /
             static_cast<double>(std::max<std::uint64_t>(1, delivered));
    };
    stats.copy.queued = mean(queued_);
    stats.consumer = StageStats{.busy = clock.busy(),
                                .waiting_for_input = clock.waiting(),
                                .batches = delivered,
                                .bytes = stats.copy.bytes};
    using std::chrono::nanoseconds;
    if (device_times)
      stats.device = {.copies = stats.copy.timed,
                      .batches = device.steps,
                      .consuming = nanoseconds(device.consuming),
                      .awaiting_batch = nanoseconds(device.until_staged),
                      .awaiting_copy = nanoseconds(device.until_there),
                      .longest_wait = nanoseconds(device.longest_step_wait)};
    else
      stats.waits = {.batches = device.waits,
                     .waiting = nanoseconds(device.waiting),
                     .longest = nanoseconds(device.longest_wait)};
    stats.setup.second_stream = second_stream_.load(std::memory_order_relaxed);
    stats.first_batch = clock.first();
    stats.longest_wait = clock.longest();
  }

  ConsumerClock clock;

 private:
  std::atomic<std::uint64_t> delivered_{0}, queued_{0};
  std::atomic<std::size_t> leased_{0};
  std::atomic<bool> second_stream_{false};
};

}  // namespace penstock::detail
