// SPDX-License-Identifier: Apache-2.0
#pragma once

// Replay: predicts how fast recorded batches would have passed the pipeline with other settings.
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

namespace penstock::inline PENSTOCK_ABI::detail {

struct ReplayResult {
  std::chrono::nanoseconds period{0};  ///< mean time from one batch to the next
  double starved = 0;                  ///< fraction of time in which the consumer waits for input
};

/// Not thread-safe.
class Replay {
 public:
  /// Allocates all memory that is needed for `capacity` batches; load() allocates if there are
  /// more.
  explicit Replay(std::size_t capacity) : costs_(capacity), fillings_(ReplayPass::kFillings) {
    events_.reserve(2 * capacity);
  }

  /// Loads batches that have ended. Returns false if a prediction is not possible: they are too
  /// few, the host was far ahead of the device, or a replay with the present settings misses the
  /// measured period by over 15 %.
  bool load(std::span<const FinishedBatch> batches, const PipelineShape& shape);

  /// Replays the batches twice and returns the result of the second pass. The result depends only
  /// on the batches and the settings. Does not allocate.
  ReplayResult run(const ReplaySettings& settings) const noexcept;
  /// Returns only the period of run(), in nanoseconds.
  double period(const ReplaySettings& settings) const noexcept {
    return static_cast<double>(run(settings).period.count());
  }
  /// Returns for each Bottleneck its share of the present period: how strongly the period changes
  /// with the time of the stage, between half of that time and 1 % more. If more slots would make
  /// batches faster, the consumer's share is counted as waiting_for_slot.
  std::array<double, 7> shares() const noexcept;

  ReplaySettings present() const { return {shape().present}; }
  const PipelineShape& shape() const { return costs_.shape(); }
  const BatchCosts& costs() const { return costs_; }
  /// Replaces the longest fill by a typical one. Returns by how much it was longer.
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
  constexpr double kMore = 0.01, kLess = 0.5;  // fractions of a stage's time
  constexpr double kGains = 1.01;              // speed-up
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

/// Returns the relative error of the period in a replay with the present settings. If the
/// consumer's stream was not measured, first fits its time to the period.
inline double Replay::fit() {
  const double measured = costs_.period();
  if (costs_.lacks_device_times()) {  // Finds the time of the stream by bisection.
    double low = 0, high = measured;
    for (int step = 0; step < 20; ++step) {
      const double middle = (low + high) / 2;
      costs_.set_stream_work(middle);
      (period(present()) < measured ? low : high) = middle;
    }
  }
  return std::abs(period(present()) / measured - 1);
}

}  // namespace penstock::detail
