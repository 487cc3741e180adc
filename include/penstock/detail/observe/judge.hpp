// SPDX-License-Identifier: Apache-2.0
#pragma once

// Judge: finds the verdict on a snapshot of Stats by replays of its last batches.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <penstock/detail/observe/replay.hpp>
#include <penstock/detail/observe/settings_search.hpp>
#include <penstock/stats.hpp>
#include <penstock/tuning.hpp>
#include <penstock/verdict.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

class Judge {
 public:
  static constexpr double kStarves = 0.05;     // fraction of time: a consumer that waits less has
                                               // enough input
  static constexpr double kWorthwhile = 1.05;  // speed-up: a change that gains less is not advised
  static constexpr double kAsFast = 1.02;      // speed-up: this difference counts as none
  static constexpr double kComputes = 0.5;     // fraction of time: a source that computes more does
                                               // not wait for data

  explicit Judge(const Stats& stats)
      : stats_(stats),
        replay_(stats.recent ? stats.recent->batches.size() : 0),
        is_known_(stats.recent && replay_.load(stats.recent->batches, shape_of(stats))) {
    if (!has_batches()) return;
    ReplayResult now = replay_.run(replay_.present());
    if (is_known_) leave_out_late_batch(now);
    tell_times(now);
    tell_stage();
    if (!is_known_) return;
    verdict_.kind = VerdictKind::nothing;
    find_gains();
    if (verdict_.starved > kStarves && !waits_for_data()) advise();
  }

  const Verdict& verdict() const { return verdict_; }

  // ---- Input of VerdictSentence

  const Stats& stats() const { return stats_; }
  const PipelineShape& shape() const { return replay_.shape(); }
  /// True: there are enough batches.
  bool has_batches() const { return costs().all().size() >= BatchCosts::kMinBatches; }
  /// True: a replay of the batches reproduces their measured period.
  bool is_known() const { return is_known_; }
  /// True: one batch was late, and apart from it the consumer has input whenever it asks.
  bool was_late() const { return late_.count() > 0 && verdict_.starved <= kStarves; }
  std::chrono::nanoseconds late() const { return late_; }
  /// True: the source is an unbounded stream that waits for its data.
  bool waits_for_data() const { return verdict_.stage == Bottleneck::waiting_for_data; }
  const BatchCosts& costs() const { return replay_.costs(); }
  /// The best change of this kind.
  const Gain& gain(VerdictKind kind) const {
    return *std::find_if(verdict_.gains.begin(), verdict_.gains.end(),
                         [&](const Gain& gain) { return gain.kind == kind; });
  }
  /// The fraction of a worker's time in the source in which it computes; nullopt: unknown.
  static std::optional<double> computing(const Stats& stats) {
    if (stats.worker_cpu.count() == 0 || stats.source.busy.count() == 0) return std::nullopt;
    const double cpu = static_cast<double>(stats.worker_cpu.count());
    return std::min(1.0, cpu / static_cast<double>(stats.source.busy.count()));
  }

  static PipelineShape shape_of(const Stats& stats) {
    PipelineShape shape{.setup = stats.setup, .on_device = stats.host_depth == 0};
    shape.present = {static_cast<std::size_t>(std::max(1, stats.workers)), stats.host_depth,
                     std::max<std::size_t>(1, stats.device_depth)};
    shape.computing = computing(stats).value_or(0);
    const Tuning none, &tuning = stats.tuning ? *stats.tuning : none;
    shape.host_allocated = std::max(stats.host_depth, tuning.most_host_depth);
    shape.device_allocated = std::max(shape.present.device_depth, tuning.most_device_depth);
    if (shape.host_allocated > 0) shape.host_bytes = stats.host_bytes / shape.host_allocated;
    shape.device_bytes = stats.device_bytes / shape.device_allocated;
    return shape;
  }

 private:
  /// Removes one late batch: a batch that took far longer than the others and made the consumer
  /// wait longer than all others together. Later batches will not be late. `now` becomes the result
  /// of the replay without it.
  void leave_out_late_batch(ReplayResult& now) {
    constexpr double kFarLonger = 4;
    if (now.starved <= kStarves || stats_.setup.unbounded) return;
    Replay rest = replay_;
    const double longer = rest.forget_longest_fill();
    if (longer <= kFarLonger * static_cast<double>(now.period.count())) return;
    const ReplayResult others = rest.run(rest.present());
    const auto missed = [&](const ReplayResult& result) {
      return result.starved * static_cast<double>(result.period.count());
    };
    if (2 * missed(others) > missed(now)) return;
    late_ = std::chrono::nanoseconds(static_cast<std::int64_t>(longer));
    replay_ = std::move(rest);
    now = others;
  }

  void tell_times(const ReplayResult& now) {
    const auto mean = [&](double RecordedBatch::*time) {
      double sum = 0;
      for (const RecordedBatch& cost : costs().all()) sum += cost.*time;
      return std::chrono::nanoseconds(
          static_cast<std::int64_t>(sum / static_cast<double>(costs().all().size())));
    };
    verdict_.period = std::chrono::nanoseconds(static_cast<std::int64_t>(costs().period()));
    const auto source = std::max(mean(&RecordedBatch::fill), mean(&RecordedBatch::source));
    source_.note(shape().present.workers, static_cast<double>(source.count()));
    verdict_.source = source / static_cast<int>(shape().present.workers);
    verdict_.copy = mean(&RecordedBatch::copy);
    verdict_.transform = mean(&RecordedBatch::transform);
    verdict_.consumer = mean(&RecordedBatch::stream_work);
    if (verdict_.consumer.count() == 0) verdict_.consumer = mean(&RecordedBatch::thread_work);
    const double measured = costs().starved();
    // Without the late batch, only the replay knows the fraction.
    verdict_.starved = measured < 0 || late_.count() > 0 ? now.starved : measured;
    if (late_.count() > 0) verdict_.period = now.period;
  }

  void tell_stage() {
    const auto shares = replay_.shares();
    const auto largest = std::max_element(shares.begin(), shares.end());
    verdict_.stage = static_cast<Bottleneck>(largest - shares.begin());
    if (verdict_.starved <= kStarves && verdict_.stage != Bottleneck::consumer)
      verdict_.stage = Bottleneck::balanced;
    if (verdict_.stage == Bottleneck::source && stats_.setup.unbounded &&
        computing(stats_).value_or(1) < kComputes)
      verdict_.stage = Bottleneck::waiting_for_data;
  }

  Gain gain_of(VerdictKind kind, const ReplaySettings& settings) const {
    return {
        .kind = kind,
        .workers = static_cast<int>(settings.workers),
        .host_depth = settings.host_depth,
        .device_depth = settings.device_depth,
        .more_bytes = shape().more_bytes(settings),
        .times_faster = std::max(1.0, period(replay_.present()) / std::max(1.0, period(settings)))};
  }
  /// A replay of few batches may end within the first round of many workers.
  double period(const ReplaySettings& settings) const {
    return std::max(settings.source * source_.time() / static_cast<double>(settings.workers),
                    replay_.period(settings));
  }
  Gain gain_of_settings(VerdictKind kind, std::size_t workers) const {
    const SettingsSearch search(replay_, source_);
    return gain_of(kind, {search.cheapest(shape().present, shape().most(workers))});
  }
  Gain twice_as_fast(VerdictKind kind, double ReplaySettings::*stage) const {
    ReplaySettings settings = replay_.present();
    settings.*stage = 0.5;
    return gain_of(kind, settings);
  }

  void find_gains() {
    const Gain copy = twice_as_fast(VerdictKind::faster_copy, &ReplaySettings::copy);
    const Gain transform = twice_as_fast(VerdictKind::faster_copy, &ReplaySettings::transform);
    verdict_.gains = {gain_of_settings(VerdictKind::more_workers, shape().most_workers()),
                      gain_of_settings(VerdictKind::more_depth, shape().present.workers),
                      twice_as_fast(VerdictKind::faster_source, &ReplaySettings::source),
                      transform.times_faster > copy.times_faster ? transform : copy};
    std::stable_sort(verdict_.gains.begin(), verdict_.gains.end(),
                     [](const Gain& a, const Gain& b) { return a.times_faster > b.times_faster; });
  }

  /// Advises other settings first: the cheapest of those that are about as fast as the fastest. If
  /// they gain too little, advises a change of the program.
  void advise() {
    const Gain &workers = gain(VerdictKind::more_workers), &depth = gain(VerdictKind::more_depth);
    const Gain& settings = depth.times_faster * kAsFast >= workers.times_faster ? depth : workers;
    if (settings.times_faster >= kWorthwhile) return take(settings);
    const Gain &source = gain(VerdictKind::faster_source), &copy = gain(VerdictKind::faster_copy);
    const Gain& program = copy.times_faster > source.times_faster ? copy : source;
    if (program.times_faster < kWorthwhile) return;
    verdict_.kind = program.kind;
    verdict_.times_faster = program.times_faster;
    if (program.kind == VerdictKind::faster_copy) find_times_smaller();
  }

  void take(const Gain& gain) {
    const bool adds_workers = gain.workers > stats_.workers;
    verdict_.kind = adds_workers ? VerdictKind::more_workers : VerdictKind::more_depth;
    verdict_.times_faster = gain.times_faster;
    verdict_.more_bytes = gain.more_bytes;
    if (adds_workers) verdict_.enough_workers = gain.workers;
    if (gain.device_depth > stats_.device_depth) verdict_.enough_device_depth = gain.device_depth;
    // A host_depth that the pipeline derives from the other settings need not be set.
    const std::size_t follows = shape().following(
        {static_cast<std::size_t>(gain.workers), gain.host_depth, gain.device_depth});
    if (gain.host_depth > std::max(follows, stats_.host_depth))
      verdict_.enough_host_depth = gain.host_depth;
  }

  /// Finds how much smaller a batch must be to make the pipeline about as fast as with empty
  /// batches.
  void find_times_smaller() {
    if (verdict_.stage != Bottleneck::copy) return;
    ReplaySettings settings = replay_.present();
    settings.copy = 0;
    const double enough = kAsFast * replay_.period(settings);
    double low = 0, high = 1;
    for (int step = 0; step < 10; ++step) {
      settings.copy = (low + high) / 2;
      (replay_.period(settings) <= enough ? low : high) = settings.copy;
    }
    if (low > 0) verdict_.times_smaller = 1 / low;
  }

  const Stats& stats_;
  Replay replay_;
  const bool is_known_;
  SourceScaling source_;
  Verdict verdict_;
  std::chrono::nanoseconds late_{0};
};

}  // namespace penstock::detail
