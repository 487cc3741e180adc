// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reactor: a thread that sends requests and receives answers, many at a time, by libcurl's multi
// interface. It alone touches the attempts of its parts: a hedge and the request that it is for are
// with the same reactor, so none of them can write when the part has ended.

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attempt.hpp"
#include "clock.hpp"
#include "curl.hpp"
#include "part.hpp"
#include "request_ranges.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

class Transfers;

class Reactor {
 public:
  Reactor(Transfers& transfers, std::size_t number);
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;
  ~Reactor();

  void start();
  /// Any thread may call it.
  void wake() noexcept {
    if (asleep_.exchange(false)) ::curl_multi_wakeup(multi_.get());
  }
  /// After Transfers has begun to stop.
  void join() noexcept;

 private:
  void run() noexcept;
  void work() noexcept;
  void start_ready() noexcept;
  bool send(Part& part, std::size_t from, bool is_hedge) noexcept;
  void send_hedge(Attempt& late, Time now) noexcept;
  Time hedge_time(const Part& part, Time now) const noexcept;
  void take_ended() noexcept;
  void ended(Attempt& attempt, const Outcome& outcome) noexcept;
  void succeeded(Part& part, Attempt& attempt, bool by_hedge) noexcept;
  void try_again(Part& part, const Outcome& outcome) noexcept;
  void fail(Part& part, std::string_view why, int status, bool expired = false) noexcept;
  void let_go(Attempt*& attempt, bool throttled = false) noexcept;
  void look_at_times(Time now) noexcept;
  void note_processor_time() noexcept;
  void end_all(std::string_view why) noexcept;
  Attempt& free_attempt();
  int poll_milliseconds(Time now) const noexcept;

  Transfers& transfers_;
  const std::size_t number_;
  const RequestRanges ranges_{};
  Multi multi_;  // outlives the attempts' handles, which are not in it then
  std::vector<std::unique_ptr<Attempt>> attempts_;
  PartList active_;   // with an attempt
  PartList delayed_;  // that wait for the time of the next one
  int running_ = 0;   // attempts
  Time next_look_{};
  std::uint64_t processor_nanoseconds_ = 0;  // of the thread, as noted last
  std::uint64_t cancellations_seen_ = 0;
  std::minstd_rand random_;
  std::atomic<bool> asleep_{false};  // or about to be: it will look once more
  std::thread thread_;
};

}  // namespace penstock::remote
