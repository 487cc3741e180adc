// SPDX-License-Identifier: Apache-2.0
#pragma once

// SimulatedPipeline: a pipeline in which time is a number. A Tuner is told of its batches, and
// changes its settings while it runs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <penstock/detail/observe/tuner.hpp>
#include <vector>

namespace penstock::test {

/// Milliseconds for a batch.
struct SimulatedTimes {
  double source = 1, consumer = 1, copy = 0.1;
  double places = 1e9;    ///< sources that can work at a time; more share the time
  bool in_turn = false;   ///< more wait for a place instead, in the order in which they came
  double computes = 0;    ///< the part of `source` that is on a core
  double queue_only = 0;  ///< the device takes that long, and the loop does not wait for it
};

class SimulatedPipeline {
 public:
  SimulatedPipeline(const detail::TuneSettings& most, const detail::TuneSettings& start,
                    const detail::PipelineShape& shape = {})
      : shape_(shape),
        timeline_(256),
        tuner_(std::make_unique<detail::Tuner>(most, start, shape)),
        settings_(start),
        free_(start.workers, 0.0) {}

  void take(const SimulatedTimes& times, int batches) {
    for (int i = 0; i < batches; ++i) take_one(times);
  }

  int workers() const { return static_cast<int>(settings_.workers); }
  std::size_t host_depth() const { return settings_.host_depth; }
  std::size_t device_depth() const { return settings_.device_depth; }
  const detail::TuneSettings& settings() const { return settings_; }
  detail::Tuner& tuner() { return *tuner_; }
  std::size_t looks() const { return looks_; }
  const detail::Timeline& timeline() const { return timeline_; }
  /// All of them, as far as they are kept.
  std::vector<TuneDecision> decisions() const {
    Stats stats;
    tuner_->add_to(stats);
    return stats.tuning->last;
  }
  std::uint64_t count_decisions() const {
    Stats stats;
    tuner_->add_to(stats);
    return stats.tuning->decisions;
  }
  /// Whoever has changed the tuner's settings calls this.
  void apply() {
    tuner_->apply([this](const detail::TuneSettings& settings) { apply(settings); });
  }
  /// The batches so far say nothing of those that follow.
  void restart() { timeline_.restart(order_); }

 private:
  struct Batch {
    double wanted = 0, opened = 0, filled = 0, staged = 0, copied = 0, asked = 0, taken = 0,
           begun = 0, worked = 0, turned = 0, fill = 0, idle = 0;
  };

  const Batch& before(std::size_t batches) const {
    static const Batch none;
    return batches > done_.size() ? none : done_[done_.size() - batches];
  }
  void apply(const detail::TuneSettings& settings) {
    settings_ = settings;
    std::sort(free_.begin(), free_.end());
    free_.resize(settings.workers, now_);
  }
  double& earliest() { return *std::min_element(free_.begin(), free_.end()); }

  void take_one(const SimulatedTimes& times) {
    const bool on_device = shape_.on_device;
    Batch next;
    next.fill = times.source * std::max(1.0, workers() / times.places);
    next.wanted = earliest();
    const double memory =
        on_device ? before(settings_.device_depth).turned : before(settings_.host_depth).copied;
    next.opened = std::max(next.wanted, memory);
    if (shape_.setup.per_sample) {
      for (int piece = 0; piece < shape_.pieces(); ++piece) {
        double& worker = earliest();
        worker = std::max(worker, next.opened) + next.fill / shape_.pieces();
        next.filled = std::max(next.filled, worker);
      }
    } else {
      if (times.in_turn) next.fill = wait_for_place(times, next.opened) + times.source;
      next.filled = earliest() = next.opened + next.fill;
    }
    next.staged = std::max(next.filled, before(1).staged);
    if (!on_device) next.staged = std::max(next.staged, before(settings_.device_depth).turned);
    next.copied =
        on_device
            ? next.filled
            : std::max({next.staged, before(1).copied, before(settings_.device_depth).worked}) +
                  times.copy;
    next.asked = before(1).turned;
    next.taken = std::max(next.asked, next.staged);
    const double reached = std::max(next.asked, before(1).worked);
    next.begun = std::max(reached, next.copied);
    next.idle = next.begun - reached;
    const bool queues = times.queue_only > 0;
    next.worked = next.begun + (queues ? times.queue_only : times.consumer);
    next.turned = queues ? next.taken + 0.01 : next.worked;
    finish(next, times);
  }

  /// The time that a source waits which comes at `now`.
  double wait_for_place(const SimulatedTimes& times, double now) {
    places_.resize(static_cast<std::size_t>(times.places), 0.0);
    double& place = *std::min_element(places_.begin(), places_.end());
    const double wait = std::max(0.0, place - now);
    place = now + wait + times.source;
    return wait;
  }

  void finish(const Batch& next, const SimulatedTimes& times) {
    const auto ticks = [](double time) { return static_cast<detail::Ticks>(time * 1e6) + 1000; };
    detail::BatchTimes stamps;
    stamps.wanted = ticks(next.wanted);
    stamps.opened = ticks(next.opened);
    stamps.filled = ticks(next.filled);
    stamps.staged = ticks(next.staged);
    stamps.asked = ticks(next.asked);
    stamps.taken = ticks(next.taken);
    stamps.released = ticks(next.turned);
    stamps.work = static_cast<std::uint64_t>(next.fill * 1e6);
    ended_.push_back({order_,
                      stamps,
                      {.source = shape_.on_device ? ticks(next.fill) : -1,
                       .copy = shape_.on_device ? -1 : static_cast<std::int64_t>(times.copy * 1e6),
                       .transform = -1,
                       .wait = static_cast<std::int64_t>(next.idle * 1e6),
                       .step = static_cast<std::int64_t>((next.worked - next.begun) * 1e6)}});
    ++order_;
    done_.push_back(next);
    if (done_.size() > 2000) done_.pop_front();
    times_.busy += next.fill * 1e6;
    times_.cpu += next.fill * 1e6 * times.computes;
    publish(next.filled);
  }

  /// The batch was published at that time: which batches have ended before?
  void publish(double now) {
    now_ = std::max(now_, now);
    while (!ended_.empty() && static_cast<double>(ended_.front().stamps.released) <= now_ * 1e6) {
      const Ended& batch = ended_.front();
      timeline_.add(batch.order, batch.order, batch.stamps);
      timeline_.measure(batch.order, batch.device);
      ended_.pop_front();
    }
    if (!tuner_->is_due()) return;
    ++looks_;
    if (tuner_->look(timeline_, times_, static_cast<detail::Ticks>(now_ * 1e6) + 1000)) apply();
  }

  struct Ended {
    std::uint64_t order;
    detail::BatchTimes stamps;
    detail::DeviceDurations device;
  };

  detail::PipelineShape shape_;
  detail::Timeline timeline_;
  std::unique_ptr<detail::Tuner> tuner_;
  detail::TuneSettings settings_;
  std::vector<double> free_;    // when each worker is
  std::vector<double> places_;  // when each place is
  std::deque<Batch> done_;
  std::deque<Ended> ended_;
  std::uint64_t order_ = 0;
  std::size_t looks_ = 0;
  detail::WorkerTimes times_;
  double now_ = 0;
};

}  // namespace penstock::test
