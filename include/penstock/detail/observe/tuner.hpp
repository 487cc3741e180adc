// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tuner: finds, while a pipeline runs, how many workers it needs and how many batches it must
// prepare ahead. Once in a window of some batches, a worker that has published a batch calls
// look():
//
//   measure()  how the batches since the last change followed each other
//   judge()    whether that change did what was predicted; else it is put back
//   search()   for the cheapest settings that are about as fast as the best ones, by a replay
//
// docs/tuning.md explains it.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/detail/observe/medians.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <penstock/detail/observe/replay.hpp>
#include <penstock/detail/observe/settings_search.hpp>
#include <penstock/detail/observe/source_scaling.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/timeline.hpp>
#include <penstock/detail/observe/tune_log.hpp>
#include <penstock/detail/observe/tune_settings.hpp>
#include <penstock/stats.hpp>
#include <penstock/tuning.hpp>
#include <span>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class Tuner {
 public:
  /// Allocates all memory that it will need. The settings in `shape` are not read.
  Tuner(const TuneSettings& most, const TuneSettings& start, const PipelineShape& shape)
      : most_(most),
        most_records_(std::max(kMinRecords, kRounds * most.workers)),
        shape_(shape),
        replay_(most_records_),
        medians_(most_records_),
        now_(start),
        least_slots_(shape.on_device ? 1 : start.device_depth),
        slots_(start.device_depth) {
    shape_.setup.deepens = false;  // The tuner sets host_depth.
    records_.reserve(most_records_);
  }

  // ---- Called by a thread that has published a batch

  /// Returns true if a window has ended; then the calling thread must call look(). At most one
  /// thread at a time gets true.
  bool is_due() noexcept {
    if (published_.fetch_add(1, std::memory_order_relaxed) + 1 <
        due_at_.load(std::memory_order_relaxed))
      return false;
    return !is_looking_.test_and_set(std::memory_order_acquire);
  }
  /// Returns true if the settings have changed; then call apply(). `now`: the result of ticks().
  /// Does not allocate.
  bool look(const Timeline& timeline, const WorkerTimes& workers, Ticks now) noexcept {
    if (measure(timeline, workers, now) && judge()) search();
    const bool has_changed = std::exchange(has_changed_, false);
    is_looking_.clear(std::memory_order_release);
    return has_changed;
  }

  // ---- Called by the thread that takes, for changes that do not wait for the end of a window. If
  // the result is true, call apply().

  /// Adds a device slot if the limits allow it. Call it if the consumer holds more leases, or if a
  /// slot was lost.
  bool add_slot(std::uint64_t delivered, TuneReason reason) {
    return add_one(&TuneSettings::device_depth, delivered, reason);
  }
  /// Adds memory for one batch, to replace lost memory.
  bool add_memory(std::uint64_t delivered) {
    return add_one(shape_.worker_depth(), delivered, TuneReason::lost);
  }

  // ---- Called by any thread

  /// Calls use(settings()) under a lock, so that the last call of `use` gets the latest settings.
  template <class Use>
  void apply(Use use) const {
    const std::lock_guard lock(mutex_);
    use(plus(now_, lost_));
  }
  TuneSettings settings() const {
    const std::lock_guard lock(mutex_);
    return plus(now_, lost_);
  }
  std::size_t slots() const { return slots_.load(std::memory_order_relaxed); }
  void add_to(Stats& stats) const {
    const TuneSettings now = settings();
    stats.workers = static_cast<int>(now.workers);
    stats.host_depth = now.host_depth;
    stats.device_depth = now.device_depth;
    auto tuning = std::make_shared<Tuning>();
    tuning->most_workers = static_cast<int>(most_.workers);
    tuning->most_host_depth = most_.host_depth;
    tuning->most_device_depth = most_.device_depth;
    log_.add_to(*tuning);
    stats.tuning = std::move(tuning);
  }

 private:
  using Records = std::span<const FinishedBatch>;

  // How many of the last batches are read: kMinRecords, or kRounds whole rounds of the workers.
  static constexpr std::size_t kMinRecords = 64, kRounds = 3;
  // The batches of a window, which is extended to whole rounds of the workers, and its least time.
  static constexpr std::size_t kWindow = 8;
  static constexpr Ticks kShortest = 10'000'000;
  static constexpr std::size_t kMany = 4 * kWindow;  // the batches that are needed for a step down
  // A smaller gain is ignored. The limit is higher if few batches were measured.
  static constexpr double kWorth = 0.03, kWorthOfOne = 0.4;
  static constexpr double kStarved =
      0.03;  // fraction of time; a consumer that waits less has input
  static constexpr double kNoise = 1.03, kWorse = 1.08, kClearlyWorse = 1.2, kMostLoss = 1.5;
  static constexpr int kMostPatience = 64;  // in windows

  /// The number of windows in which a setting is not changed. It doubles each time.
  struct Rest {
    int next = 2, left = 0;
    void begin() {
      left = next;
      next = std::min(2 * next, kMostPatience);
    }
  };
  /// A change whose result is not known yet.
  struct Trial {
    TuneReason reason;
    TuneSettings before;
    double period, predicted, source;
    std::uint64_t batch;
  };

  bool measure(const Timeline& timeline, const WorkerTimes& workers, Ticks now);
  bool judge();
  double allowed(const Trial& trial) const;
  void search();
  void step_down(const TuneSettings& found, const SettingsSearch& search);
  Records of_this_phase();
  void change(const TuneSettings& next, TuneReason reason, double predicted);
  bool add_one(std::size_t TuneSettings::*setting, std::uint64_t delivered, TuneReason reason);
  void log(const TuneSettings& before, TuneDecision decision);

  /// The number of batches that are filled at the same time: workers that begin together finish
  /// together.
  std::size_t round() const { return shape_.setup.per_sample ? 1 : present_.workers; }
  /// The last records whose batches were opened at `time` or later.
  Records since(Ticks time) const {
    std::size_t first = records_.size();
    while (first > 0 && records_[first - 1].times.opened >= time) --first;
    return Records(records_).subspan(first);
  }
  double median(Records records, double (*time)(const FinishedBatch&)) {
    return medians_.of(records.size(), [&](std::size_t k) { return time(records[k]); });
  }
  static double source_time(const FinishedBatch& batch) {
    return static_cast<double>(batch.times.source_time());
  }
  double mean_source();
  static TuneSettings plus(TuneSettings settings, const TuneSettings& lost) {
    for (const auto knob : kKnobs) settings.*knob += lost.*knob;
    return settings;
  }
  void look_again_after(std::size_t batches) {
    due_at_.store(published_.load(std::memory_order_relaxed) + batches, std::memory_order_relaxed);
  }
  static std::chrono::nanoseconds nanoseconds(double time) {
    return std::chrono::nanoseconds(std::llround(time));
  }

  const TuneSettings most_;
  const std::size_t most_records_;
  std::atomic<std::uint64_t> published_{0}, due_at_{kWindow};
  std::atomic_flag is_looking_;

  // Only the thread that runs look() uses these.
  PipelineShape shape_;
  TuneSettings present_, least_, possible_;  // the settings and their limits, without lost memory
  std::vector<FinishedBatch> records_;
  Replay replay_;
  Medians medians_;
  WorkerTimes workers_before_;
  Ticks looked_at_ = 0, changed_at_ = 0;  // times of the last look() and of the last one that
                                          // changed the settings
  Ticks phase_at_ = 0;  // the present phase consists of the batches that were opened since then
  std::uint64_t batch_ = 0;
  // These describe the batches since the last change. The times are those of one batch.
  std::size_t fresh_ = 0;
  double period_ = 0, source_ = 0, latest_source_ = 0, consumer_ = 0;
  bool is_faithful_ = false;  // a replay of these batches reproduces their period
  SourceScaling scaling_;
  std::optional<Trial> trial_;
  std::array<Rest, kKnobs.size()> rests_;
  TuneSettings needed_;  // the largest settings that were found in the last calm_ windows
  int calm_ = 0, patience_ = 1, since_down_ = kMostPatience;
  bool has_changed_ = false;

  mutable std::mutex mutex_;  // protects the members below; held for a few stores, and while `use`
                              // runs
  TuneSettings now_, lost_;   // lost memory counts as in use
  std::size_t least_slots_;   // the device slots that the leases need
  std::atomic<std::size_t> slots_;
  TuneLog log_;
};

// ---- Measure ------------------------------------------------------------------------------------

/// Returns false if there are too few batches since the last change, or if the last look was too
/// recent.
inline bool Tuner::measure(const Timeline& timeline, const WorkerTimes& workers, Ticks now) {
  {
    const std::lock_guard lock(mutex_);
    present_ = now_;
    possible_ = most_;
    for (const auto knob : kKnobs) possible_.*knob -= lost_.*knob;
    least_ = {1, shape_.on_device ? 0U : 1U, least_slots_};
  }
  look_again_after((kWindow + round() - 1) / round() * round());
  if (now - looked_at_ < kShortest) return false;
  timeline.copy(records_, most_records_);
  batch_ = timeline.sums().batches;
  const Records fresh = since(changed_at_);
  fresh_ = fresh.size();
  const std::size_t needed = round() == 1 ? kWindow : round() + std::max(round(), kWindow);
  if (fresh_ < needed) {
    look_again_after(needed - fresh_);
    return false;
  }
  looked_at_ = now;
  shape_.present = present_;
  shape_.since = changed_at_;
  is_faithful_ = replay_.load(fresh.last(fresh_ / round() * round()), shape_);
  const auto costs = replay_.costs().all();
  if (costs.size() < BatchCosts::kMinBatches) return false;
  period_ = replay_.costs().period();
  source_ = mean_source();
  latest_source_ = std::max(source_, median(fresh.last(kWindow / 2), &source_time));
  consumer_ = 0;
  for (const RecordedBatch& cost : costs)
    consumer_ += std::max(cost.stream_work, cost.thread_work) / static_cast<double>(costs.size());
  scaling_.note(present_.workers, source_);
  const double busy = workers.busy - workers_before_.busy, cpu = workers.cpu - workers_before_.cpu;
  workers_before_ = workers;
  if (busy > 0) shape_.computing = std::clamp(cpu / busy, 0.0, 1.0);
  for (Rest& rest : rests_) rest.left = std::max(0, rest.left - 1);
  ++since_down_;
  return true;
}

/// Returns the mean time in the source of the loaded batches, without those that took far longer
/// than most. It is no median: where three of four workers are served at once and the fourth waits
/// for all of them, the median is the time of a worker that shares nothing.
inline double Tuner::mean_source() {
  constexpr double kFarLonger = 4;  // workers that share a resource differ less
  const auto costs = replay_.costs().all();
  const auto time = [&](std::size_t k) { return std::max(costs[k].fill, costs[k].source); };
  const double most = kFarLonger * medians_.of(costs.size(), time);
  double sum = 0, count = 0;
  for (std::size_t k = 0; k < costs.size(); ++k) {
    if (time(k) > most) continue;
    sum += time(k);
    ++count;
  }
  return sum / std::max(1.0, count);
}

// ---- Judge --------------------------------------------------------------------------------------

/// Compares the batches since the last change with the prediction. Returns false if the change was
/// reverted, or if the batches are too few to decide.
inline bool Tuner::judge() {
  if (!trial_) return true;
  const TuneSettings before = trial_->before;
  const bool faster = trial_->reason == TuneReason::faster;
  if (present_.workers > before.workers) scaling_.learn(before.workers, trial_->source);
  const double starved = replay_.costs().starved();
  const double most = allowed(*trial_);
  // If workers share a resource, a batch takes less time with fewer workers. It may also take more
  // time, if another process now uses more of the resource. If workers share nothing, the time is
  // the same.
  const double fewer = static_cast<double>(present_.workers) / static_cast<double>(before.workers);
  const double slower = source_ / trial_->source;
  const bool do_share =
      scaling_.is_shared() && fewer < 1 && (slower < (1 + fewer) / 2 || slower > kWorse);
  const bool keeps = period_ <= most || do_share || (starved >= 0 && starved <= kStarved);
  // If the last condition holds, search() removes some workers again.
  const bool goes_on = keeps || (faster && scaling_.enough() < present_.workers);
  const bool is_clear = goes_on || (!faster && period_ > kClearlyWorse * most);
  if (!is_clear && fresh_ < round() + 2 * kWindow) return false;
  log_.measure(trial_->batch, nanoseconds(period_));
  trial_.reset();
  for (std::size_t knob = 0; knob < kKnobs.size(); ++knob) {
    if (present_.*kKnobs[knob] == before.*kKnobs[knob]) continue;
    if (!keeps || (faster && scaling_.is_shared()))
      rests_[knob].begin();
    else if (faster)
      rests_[knob] = {};
  }
  if (goes_on) return true;
  if (present_.workers < before.workers) scaling_.forget();
  if (!faster) patience_ = std::min(2 * patience_, kMostPatience);
  change(before, TuneReason::reverted, 0);
  return false;
}

/// Returns the longest period with which a change is kept. It follows from the period before the
/// change and from a replay of the batches since then with the earlier settings, since the source
/// or the consumer may have changed meanwhile. The larger of the two counts.
inline double Tuner::allowed(const Trial& trial) const {
  const SettingsSearch search(replay_, scaling_);
  const double without = is_faithful_ ? search.period(trial.before) : 0;
  const double with = is_faithful_ ? search.period(present_) : 0;
  if (trial.reason == TuneReason::faster)  // half of the predicted gain is enough
    return kNoise * std::max(without + with, trial.period + trial.predicted) / 2;
  if (!scaling_.is_shared()) return kWorse * std::max(without, trial.period);
  // If workers share nothing, the rate is proportional to their number.
  const auto fewer =
      static_cast<double>(trial.before.workers) / static_cast<double>(present_.workers);
  return trial.period * std::clamp((1 + fewer) / 2, kWorse, kMostLoss);
}

// ---- Search -------------------------------------------------------------------------------------

inline void Tuner::search() {
  if (scaling_.enough() < present_.workers) {
    TuneSettings fewer = present_;
    fewer.workers = scaling_.enough();
    return change(fewer, TuneReason::cheaper, period_);
  }
  if (!is_faithful_) return;
  replay_.load(of_this_phase(), shape_);
  const std::size_t count = replay_.costs().all().size();
  if (count < BatchCosts::kMinBatches) return;
  TuneSettings least = least_, most = possible_;
  most.workers = std::min(most.workers, shape_.by_cores());
  if (scaling_.is_shared())
    most.workers =
        std::min(most.workers, present_.workers + std::max<std::size_t>(1, present_.workers / 4));
  for (std::size_t knob = 0; knob < kKnobs.size(); ++knob) {
    const std::size_t now = present_.*kKnobs[knob];
    most.*kKnobs[knob] = std::max(most.*kKnobs[knob], now);
    if (rests_[knob].left > 0) least.*kKnobs[knob] = most.*kKnobs[knob] = now;
  }
  const SettingsSearch search(replay_, scaling_);
  TuneSettings found = search.cheapest(least, most);
  // Needs memory for a batch of each worker and for one that is ready. One more is added, since the
  // prediction leaves no reserve.
  const std::size_t fewest = shape_.setup.per_sample ? 2 : found.workers + 1;
  std::size_t& depth = found.*shape_.worker_depth();
  depth = std::min(std::max(depth, fewest) + 1, most.*shape_.worker_depth());
  TuneSettings more = present_;
  for (const auto knob : kKnobs) more.*knob = std::max(more.*knob, found.*knob);
  const double predicted = search.period(more), gain = search.period(present_) / predicted - 1;
  if (gain > kWorth + kWorthOfOne / static_cast<double>(count))
    change(more, TuneReason::faster, predicted);
  else if (count >= kMany)
    step_down(found, search);
}

/// Reduces the settings to the largest that were found in the last windows, if there were enough
/// windows.
inline void Tuner::step_down(const TuneSettings& found, const SettingsSearch& search) {
  if (calm_++ == 0) needed_ = {};
  for (const auto knob : kKnobs) needed_.*knob = std::max(needed_.*knob, found.*knob);
  if (calm_ < patience_) return;
  calm_ = 0;
  TuneSettings next = needed_;  // with fewer workers, more batches ahead are allowed
  if (needed_.workers >= present_.workers) {
    next = present_;
    if (needed_.host_depth + std::max<std::size_t>(2, next.host_depth / 4) <= next.host_depth)
      next.host_depth = needed_.host_depth;
    next.device_depth = std::min(next.device_depth, needed_.device_depth);
  }
  if (next != present_) change(next, TuneReason::cheaper, search.period(next));
}

/// Returns the last records, without those of an earlier phase. A new phase begins when the time of
/// the source or of the consumer differs clearly from before.
inline auto Tuner::of_this_phase() -> Records {
  constexpr double kFarLonger = 1.5, kMatters = 0.2;
  const Records all = since(phase_at_);
  const std::size_t late = std::max(kWindow, round());
  if (all.size() < 2 * late) return all;
  const auto differs = [&](double (*time)(const FinishedBatch&)) {
    const double a = median(all.first(all.size() - late), time), b = median(all.last(late), time);
    return std::max(a, b) > kFarLonger * std::min(a, b) && std::abs(a - b) > kMatters * period_;
  };
  if ((scaling_.is_shared() || !differs(&source_time)) && !differs([](const FinishedBatch& batch) {
        return static_cast<double>(std::max<Ticks>(0, batch.device.step));
      }))
    return all;
  phase_at_ = all.last(late).front().times.opened;
  return all.last(late);
}

// ---- Changes ------------------------------------------------------------------------------------

/// Changes the settings to `next`, which does not include lost memory.
inline void Tuner::change(const TuneSettings& next, TuneReason reason, double predicted) {
  const std::lock_guard lock(mutex_);
  if (present_ != now_) return;  // the thread that takes has changed the settings meanwhile
  if (reason == TuneReason::faster && since_down_ < 4 * patience_ + 4)
    patience_ = std::min(2 * patience_, kMostPatience);
  if (reason == TuneReason::cheaper) since_down_ = 0;
  if (reason != TuneReason::reverted)
    trial_ = {reason, present_, period_, predicted, latest_source_, batch_};
  changed_at_ = looked_at_;
  calm_ = 0;
  has_changed_ = true;
  const TuneSettings before = plus(std::exchange(now_, next), lost_);
  now_.device_depth = std::max(next.device_depth, least_slots_);
  log(before, {.batch = batch_,
               .reason = reason,
               .source = nanoseconds(source_),
               .consumer = nanoseconds(consumer_),
               .period = nanoseconds(period_),
               .predicted = nanoseconds(predicted)});
}

inline bool Tuner::add_one(std::size_t TuneSettings::*setting, std::uint64_t delivered,
                           TuneReason reason) {
  const std::lock_guard lock(mutex_);
  const TuneSettings before = plus(now_, lost_);
  if (before.*setting >= most_.*setting) return false;
  TuneSettings& grows = reason == TuneReason::lost ? lost_ : now_;
  ++(grows.*setting);
  if (reason == TuneReason::leases) least_slots_ = now_.device_depth;
  log(before, {.batch = delivered, .reason = reason});
  return true;
}

/// Logs each setting that differs from `before`. Call it with the lock held.
inline void Tuner::log(const TuneSettings& before, TuneDecision decision) {
  const TuneSettings now = plus(now_, lost_);
  slots_.store(now.device_depth, std::memory_order_relaxed);
  for (std::size_t knob = 0; knob < kKnobs.size(); ++knob) {
    decision.knob = static_cast<TuneKnob>(knob);
    decision.from = before.*kKnobs[knob];
    decision.to = now.*kKnobs[knob];
    if (decision.from != decision.to) log_.add(decision);
  }
}

}  // namespace penstock::detail
