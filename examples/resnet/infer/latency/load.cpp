// SPDX-License-Identifier: Apache-2.0

#include "load.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "../../data/augment.hpp"
#include "programs/interrupt.hpp"

namespace resnet::latency {
namespace {

constexpr std::size_t channels = 3;

/// Tells of a run as its answers come.
class Recorder {
 public:
  Recorder(const Images& images, const Load& load) : images_(images) { result_.load = load; }

  /// Returns how many answers there are, this one included.
  std::uint64_t add(const Answer& answer) {
    const Load& load = result_.load;
    const std::lock_guard lock(mutex_);
    ++result_.all_answered;
    if (answer.request.number >= load.warmup) {
      result_.latencies.add(answer.at - answer.request.arrival);
      if (answer.place + 1 == answer.batch) ++result_.batches[answer.batch];
      result_.wrong += !images_.is_right(answer);
      last_answer_ = std::max(last_answer_, answer.at);
    }
    if (answer.request.number == load.warmup) first_arrival_ = answer.request.arrival;
    return result_.all_answered;
  }

  /// Of an open loop's sender: a request was sent so long behind the schedule.
  void note_late(Clock::duration late) {
    const std::lock_guard lock(mutex_);
    result_.late = std::max(result_.late, late);
  }
  /// So many requests are sent.
  void note_backlog(std::uint64_t sent) {
    const std::lock_guard lock(mutex_);
    const Load& load = result_.load;
    const std::uint64_t backlog = sent - result_.all_answered;
    if (sent == load.warmup + load.requests / 2) result_.backlog_half = backlog;
    if (sent == load.warmup + load.requests) result_.backlog_end = backlog;
  }

  /// When no more answers come.
  Result result() {
    if (first_arrival_ != Clock::time_point())
      result_.seconds = std::chrono::duration<double>(last_answer_ - first_arrival_).count();
    return std::move(result_);
  }

 private:
  const Images& images_;
  std::mutex mutex_;
  Result result_;
  Clock::time_point first_arrival_, last_answer_;
};

/// Of a closed loop: who has an answer sends again.
class Clients {
 public:
  Clients(const Images& images, const Load& load, RequestQueue<Request>& queue)
      : images_(images), total_(load.warmup + load.requests), queue_(queue) {}

  void start(int clients) {
    bool sent = false;
    for (int i = 0; i < clients; ++i) sent |= send();
    if (!sent) queue_.close();  // Nobody will answer.
  }
  /// `answered`: of all.
  void go_on(std::uint64_t answered) {
    const bool sent = send();
    const std::lock_guard lock(mutex_);
    if (!sent && answered == sent_) queue_.close();
  }

 private:
  bool send() {
    const std::lock_guard lock(mutex_);
    if (sent_ == total_ || penstock::programs::interrupted()) return false;
    queue_.push(images_.request(sent_++, Clock::now()));
    return true;
  }

  const Images& images_;
  const std::uint64_t total_;
  RequestQueue<Request>& queue_;
  std::mutex mutex_;
  std::uint64_t sent_ = 0;
};

/// Sleeps are late by some 50 us; the last part is waited for awake. False: interrupted.
bool wait_until(Clock::time_point time) {
  constexpr std::chrono::microseconds awake(100);
  constexpr std::chrono::milliseconds nap(50);  // until the next look at interrupts
  for (Clock::time_point now = Clock::now(); now < time; now = Clock::now()) {
    if (penstock::programs::interrupted()) return false;
    if (time - now > awake)
      std::this_thread::sleep_until(std::min<Clock::time_point>(time - awake, now + nap));
    else
      std::this_thread::yield();
  }
  return !penstock::programs::interrupted();
}

}  // namespace

// ---- Images -------------------------------------------------------------------------------------

/// Waves of two colours, their lengths and directions by number: noise would be alike to a network.
Images::Images(std::size_t count, std::int64_t size) {
  for (std::size_t image = 0; image < count; ++image) {
    const auto random = [&](std::uint64_t what) {
      return static_cast<double>(detail::mixed(image * 16 + what) >> 40) / (1 << 24);
    };
    std::vector<std::uint8_t>& pixels = pixels_.emplace_back();
    for (std::int64_t at = 0; at < size * size; ++at) {
      const std::int64_t row = at / size;
      const double x = static_cast<double>(at % size) / static_cast<double>(size);
      const double y = static_cast<double>(row) / static_cast<double>(size);
      const double wave = 0.5 + 0.5 * std::sin(30 * (x * random(6) + y * random(7)));
      for (std::size_t c = 0; c < channels; ++c)
        pixels.push_back(static_cast<std::uint8_t>(
            255 * (wave * random(c) + (1 - wave) * random(channels + c))));
    }
  }
}

Request Images::request(std::uint64_t number, Clock::time_point arrival) const {
  const auto image = static_cast<std::size_t>(number % pixels_.size());
  return {number, image, pixels_[image].data(), arrival};
}

void Images::expect(Server& server) {
  expected_.clear();
  for (std::uint64_t image = 0; image < pixels_.size(); ++image) {
    const Request alone = request(image, {});
    const std::span<const float> logits = server.contexts().front()->infer({&alone, 1});
    for (const auto& other : expected_)
      if (same(logits, other))
        throw std::invalid_argument("--check: the network's answers to images " +
                                    std::to_string(&other - expected_.data()) + " and " +
                                    std::to_string(image) +
                                    " are the same: weights that are "
                                    "trained, or fewer --images");
    expected_.emplace_back(logits.begin(), logits.end());
  }
}

bool Images::is_right(const Answer& answer) const {
  return expected_.empty() || same(answer.logits, expected_[answer.request.image]);
}

bool Images::same(std::span<const float> logits, std::span<const float> wanted) const {
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    if (!(logits[i] == wanted[i]))
      difference = std::max(difference,
                            std::isfinite(logits[i]) ? std::abs(logits[i] - wanted[i]) : HUGE_VALF);
  }
  static const bool exact = operations_name().starts_with("reference");
  return difference <= (exact ? 0.0f : 0.02f * largest);
}

// ---- Runs ---------------------------------------------------------------------------------------

double Result::throughput() const {
  return seconds > 0 ? static_cast<double>(latencies.count()) / seconds : 0;
}

double Result::mean_batch() const {
  std::uint64_t requests = 0, count = 0;
  for (const auto& [size, batches_of_it] : batches) {
    requests += size * batches_of_it;
    count += batches_of_it;
  }
  return count == 0 ? 0 : static_cast<double>(requests) / static_cast<double>(count);
}

bool queue_grows(const Result& result, int contexts) {
  const std::uint64_t held = (static_cast<std::uint64_t>(contexts) + 1) * result.load.max_batch;
  return result.backlog_end > held && 4 * result.backlog_end > 5 * result.backlog_half;
}

void send_by_schedule(const Load& load, Clock::time_point start, const Send& send) {
  Arrivals arrivals(load.rate, load.arrivals, load.seed);
  for (std::uint64_t number = 0; number < load.warmup + load.requests; ++number) {
    const Clock::time_point arrival = start + arrivals.next();
    if (!wait_until(arrival) || !send(number, arrival)) return;
  }
}

Result run(Server& server, const Images& images, const Load& load, Clock::time_point start) {
  RequestQueue<Request> queue(load.max_batch, load.deadline);
  Recorder recorder(images, load);
  Clients clients(images, load, queue);
  Serving serving(server, queue, [&](const Answer& answer) {
    const std::uint64_t answered = recorder.add(answer);
    if (load.clients > 0) clients.go_on(answered);
  });
  if (load.clients > 0) {
    clients.start(load.clients);
  } else {
    send_by_schedule(load, start, [&](std::uint64_t number, Clock::time_point arrival) {
      recorder.note_late(Clock::now() - arrival);
      queue.push(images.request(number, arrival));
      recorder.note_backlog(number + 1);
      return !serving.failed();
    });
    queue.close();
  }
  serving.finish();
  return recorder.result();
}

}  // namespace resnet::latency
