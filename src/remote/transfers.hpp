// SPDX-License-Identifier: Apache-2.0
#pragma once

// Transfers: the queue of parts, and the reactors that work on it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <penstock/remote.hpp>
#include <vector>

#include "buffers.hpp"
#include "counters.hpp"
#include "latencies.hpp"
#include "part.hpp"
#include "request_limit.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

class Reactor;

/// Any number of threads may use it.
class Transfers {
 public:
  /// Starts the threads. `options` must outlive this.
  explicit Transfers(const Options& options);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  ~Transfers();  ///< as stop()

  /// A part to be filled in and submitted.
  Part& take_part();
  void give_back(Part& part) noexcept;
  /// The part's owner will hear of its end. False, and the part is given back: there was a stop().
  bool submit(Part& part) noexcept;
  /// Somebody waits for this part, which has not ended.
  void promote(Part& part) noexcept;
  /// Parts whose `cancelled` has become true end soon.
  void look_for_cancelled() noexcept;
  /// Ends all parts and the threads. The second call does nothing.
  void stop() noexcept;

  // For reactors.

  /// The next part of the queue, if the limit allows it one more request, which is then counted.
  Part* next_ready() noexcept;
  /// A part that is to be tried again, before all others.
  void submit_again(Part& part) noexcept;
  /// Ends cancelled parts of the queue.
  void sweep_queue() noexcept;
  void end(Part& part) noexcept;
  /// Wakes a reactor other than `number` if parts wait and the limit allows more requests.
  void pass_on(std::size_t number) noexcept;
  std::size_t reactors() const noexcept { return reactors_.size(); }
  std::uint64_t cancellations() const noexcept {
    return cancellations_.load(std::memory_order_acquire);
  }
  bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  /// Counts a hedge if it is one of the 5 %.
  bool try_hedge() noexcept;

  const Options& options;
  Counters counters;
  Latencies latencies;
  RequestLimit limit;
  Buffers hedge_buffers;

 private:
  void wake_one() noexcept;

  std::mutex mutex_;
  PartList reads_, aheads_;  // parts that wait for their first attempt, or for the next one
  std::vector<std::unique_ptr<Part>> parts_;
  PartList free_;
  bool stopped_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> cancellations_{0};
  std::atomic<std::size_t> next_reactor_{0};
  std::mutex stop_mutex_;
  std::vector<std::unique_ptr<Reactor>> reactors_;
};

}  // namespace penstock::remote
