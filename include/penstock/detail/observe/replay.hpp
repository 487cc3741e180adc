// SPDX-License-Identifier: Apache-2.0
#pragma once

// Replay: how fast recorded batches would have passed the pipeline with other settings.
// docs/stats.md has the recurrence.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <penstock/detail/observe/batch_costs.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <penstock/detail/observe/replay_pass.hpp>
#include <penstock/verdict.hpp>
#include <span>
#include <vector>

namespace penstock::detail {

struct ReplayResult {
  std::chrono::nanoseconds period{0};  ///< from one batch to the next
  double starved = 0;                  ///< of its time, the consumer waits for input
};

/// One thread at a time uses it.
class Replay {
 public:
  /// Allocates all that so many batches need; load() allocates for more.
  explicit Replay(std::size_t capacity) : costs_(capacity), fillings_(ReplayPass::kFillings) {
    events_.reserve(2 * capacity);
  }

  /// Takes batches that have ended. False: there is too little to go by, since they are
  /// too few, since the host was far ahead of the device, or since a replay with the present
  /// settings misses the measured period by over 15 %.
  bool load(std::span<const FinishedBatch> batches, const PipelineShape& shape);

  /// Replays the batches twice, and tells what the second time takes. A pure function of what was
  /// loaded; allocates nothing.
  ReplayResult run(const ReplaySettings& settings) const noexcept;
  /// The same, of which the period in nanoseconds.
  double period(const ReplaySettings& settings) const noexcept {
    return static_cast<double>(run(settings).period.count());
  }
  /// What the present period is made of, by Bottleneck: the part by which it follows the time of a
  /// stage, from half of that to a little more. The consumer's is that of waiting_for_slot where
  /// more slots would make batches faster.
  std::array<double, 7> shares() const noexcept;

  ReplaySettings present() const { return {shape().present}; }
  const PipelineShape& shape() const { return costs_.shape(); }
  const BatchCosts& costs() const { return costs_; }
  /// Replaces the longest fill by one of the usual length; returns by how much it was longer.
  double forget_longest_fill() { return costs_.forget_longest_fill(); }

 private:
  static constexpr double kFaithful = 0.15;

  double fit();

  BatchCosts costs_;
  mutable std::vector<ReplayEvent> events_;
  mutable std::vector<ReplayPass::Filling> fillings_;
};

inline ReplayResult Replay::run(const ReplaySettings& settings) const noexcept {
  const ReplayPass pass(costs_, settings, events_, fillings_);
  const auto count = pass.count();
  const double all = std::max(1.0, pass.end(2 * count - 1) - pass.end(count - 1));
  double idle = 0;
  for (auto i = count; i < 2 * count; ++i) idle += pass.at(i).waited;
  return {.period = std::chrono::nanoseconds(std::llround(all / static_cast<double>(count))),
          .starved = std::min(1.0, idle / all)};
}

inline std::array<double, 7> Replay::shares() const noexcept {
  constexpr double kMore = 0.01, kLess = 0.5;  // of a stage's time
  constexpr double kGains = 1.01;              // times as fast
  constexpr std::size_t kMoreSlots = 8;
  const double now = period(present());
  std::array<double, 7> shares{};
  const auto add = [&](Bottleneck stage, double ReplaySettings::*time) {
    ReplaySettings more = present(), less = more;
    more.*time += kMore;
    less.*time -= kLess;
    shares.at(static_cast<std::size_t>(stage)) +=
        (period(more) - period(less)) / ((kMore + kLess) * now);
  };
  ReplaySettings slots = present();
  slots.device_depth += kMoreSlots;
  const bool waits_for_slots = now > kGains * period(slots);
  add(Bottleneck::source, &ReplaySettings::source);
  add(Bottleneck::source, &ReplaySettings::handover);
  add(shape().on_device ? Bottleneck::source : Bottleneck::copy, &ReplaySettings::issue);
  add(Bottleneck::copy, &ReplaySettings::copy);
  add(Bottleneck::transform, &ReplaySettings::transform);
  add(waits_for_slots ? Bottleneck::waiting_for_slot : Bottleneck::consumer,
      &ReplaySettings::consumer);
  return shares;
}

inline bool Replay::load(std::span<const FinishedBatch> batches, const PipelineShape& shape) {
  const bool is_enough = costs_.load(batches, shape);
  events_.resize(2 * costs_.all().size());
  if (!is_enough) return false;
  double error = fit();
  if (costs_.is_end_unclear()) {
    costs_.load(batches, shape, true);
    if (fit() >= error) costs_.load(batches, shape);
    error = fit();
  }
  return !costs_.is_far_ahead() && error <= kFaithful;
}

/// By what part of the measured period a replay with the present settings misses it.
inline double Replay::fit() {
  const double measured = costs_.period();
  if (costs_.lacks_device_times()) {  // What is left to the consumer's stream of the period.
    double low = 0, high = measured;
    for (int step = 0; step < 20; ++step) {
      const double middle = (low + high) / 2;
      costs_.set_device(middle);
      (period(present()) < measured ? low : high) = middle;
    }
  }
  return std::abs(period(present()) / measured - 1);
}

}  // namespace penstock::detail
