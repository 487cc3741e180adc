// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loads on a server, and what comes of them.
//
//   Images images(64, 224);
//   images.expect(server);                                     // to compare answers with
//   const Result result = run(server, images, {.clients = 4, .requests = 1000});
//   const Result other = run(server, images, {.rate = 200, .requests = 1000});
//
// Closed loop: each client sends its next request when its answer came, and waits meanwhile: the
// latency that somebody has who waits. Open loop: requests arrive by a schedule, whatever became of
// those before; latency counts from the arrival on the schedule, so that time in which the server
// (or the sender) is behind counts for every request that should have been under way.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "../latencies.hpp"
#include "arrivals.hpp"
#include "server.hpp"

namespace resnet::latency {

/// Made-up images, no two of them alike.
class Images {
 public:
  /// height = width = `size`
  Images(std::size_t count, std::int64_t size);

  std::size_t size() const { return pixels_.size(); }
  /// Number `number`, counted through the images again and again.
  Request request(std::uint64_t number, Clock::time_point arrival) const;

  /// Has each image answered alone; later answers are compared with it. Throws
  /// std::invalid_argument when the network's answers to two of them are the same.
  void expect(Server& server);
  /// As it was alone: bit for bit on the reference operations; elsewhere, where other plans round
  /// otherwise, within 2 % of the largest logit. True where nothing is expected.
  bool is_right(const Answer& answer) const;

 private:
  bool same(std::span<const float> logits, std::span<const float> wanted) const;

  std::vector<std::vector<std::uint8_t>> pixels_;
  std::vector<std::vector<float>> expected_;
};

struct Load {
  int clients = 0;  ///< of a closed loop; 0: it is an open one
  double rate = 0;  ///< of an open loop: requests a second
  ArrivalKind arrivals = ArrivalKind::poisson;
  std::uint64_t seed = 1;
  std::uint64_t requests = 1000, warmup = 0;  ///< those of the warm-up come first
  Clock::duration deadline = std::chrono::milliseconds(2);
  std::size_t max_batch = 32;
};

/// Of the measured requests.
struct Result {
  Load load;
  Latencies latencies;
  std::map<std::size_t, std::uint64_t> batches;  ///< by size: how many, that end with one of them
  double seconds = 0;                            ///< first arrival to last answer
  std::uint64_t wrong = 0;                       ///< answers that are not their images'
  std::uint64_t all_answered = 0;                ///< those of the warm-up too
  /// Requests without an answer when half of an open loop's had arrived, and all.
  std::uint64_t backlog_half = 0, backlog_end = 0;
  Clock::duration late{};  ///< at most, that requests were sent behind the schedule

  double throughput() const;
  double mean_batch() const;
};

/// Is an open loop's rate beyond what the server reaches? Then there are more requests without an
/// answer at its end than the contexts have and one batch more, and clearly more than half-way.
bool queue_grows(const Result& result, int contexts);

/// What an open loop sends: request `number`, whose time on the schedule is `arrival`. False: no
/// more.
using Send = std::function<bool(std::uint64_t number, Clock::time_point arrival)>;
/// Sends every request when its time has come, or at once when that has passed. At an interrupt no
/// more are sent.
void send_by_schedule(const Load& load, Clock::time_point start, const Send& send);

/// Returns when all that was sent is answered; at an interrupt no more are sent. Throws what a
/// context threw. `start`: of an open loop's schedule.
Result run(Server& server, const Images& images, const Load& load,
           Clock::time_point start = Clock::now());

}  // namespace resnet::latency
