// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchCosts: the time that each recorded batch needed in each stage, without its waits for other
// batches. The input is the stamps of finished batches and the times measured on the device.
// BatchCosts removes the consumer's pauses and reconstructs when the device copied and when the
// consumer's stream worked. It also finds how the consumer's loop works: what the loop waits for,
// and when its leases end. A Replay adds the waits again, for other settings.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/medians.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <penstock/detail/observe/recorded_batch.hpp>
#include <span>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// What the consumer's thread waits for before it asks for the next batch.
enum class LoopWaits {
  for_this_step,  ///< the work of its stream on the current batch
  for_last_step,  ///< the work of its stream on the previous batch
  for_nothing,
};

/// How the consumer's loop works.
struct ConsumerLoop {
  LoopWaits waits = LoopWaits::for_nothing;
  /// The number of later calls of next() that return before a lease ends. 0: each iteration of the
  /// loop ends its own lease.
  std::size_t later_calls = 0;
  /// The lease ends as soon as the last of these calls returns, before work on the new batch is
  /// queued, as in `lease = prefetcher.next(stream)`.
  bool ends_early = false;
  double after_lease = 0;  ///< time from the end of a lease to the next call of next()
  double wake = 0;         ///< time from the staging of a batch that next() waits for to the return
                           ///< of next()
};

class BatchCosts {
 public:
  static constexpr std::size_t kMinBatches = RecordedBatch::kMinBatches;
  static constexpr std::size_t kMostWorkers = 512;  ///< a pipeline with more workers is treated as
                                                    ///< one with this many
  static constexpr int kStreams = RecordedBatch::kStreams;

  /// Allocates all memory that is needed for `capacity` batches.
  explicit BatchCosts(std::size_t capacity) : medians_(capacity), free_(kMostWorkers) {
    batches_.reserve(capacity);
  }

  /// Computes the costs of batches that have ended. Returns false if fewer than kMinBatches can be
  /// used. `other_end` reverses the decision whether leases end early (see
  /// ConsumerLoop::ends_early).
  bool load(std::span<const FinishedBatch> batches, const PipelineShape& shape,
            bool other_end = false);
  /// True: the stamps do not show whether a lease ends before or after the work on the next batch
  /// is queued. The caller can load the batches again with `other_end` and keep the better fit.
  bool is_end_unclear() const { return is_end_unclear_; }

  /// The batches in the order of delivery.
  std::span<const RecordedBatch> all() const { return batches_; }
  const PipelineShape& shape() const { return shape_; }
  const ConsumerLoop& loop() const { return loop_; }
  /// The measured time from one batch to the next, in nanoseconds.
  double period() const { return period_; }
  /// The fraction of time in which the consumer's stream has no work because it waits for a batch.
  /// It is negative if it was not measured.
  double starved() const { return starved_; }
  /// True: the function of an on_device source queues work on the device and returns before that
  /// work is done.
  bool source_queues() const { return source_queues_; }
  /// True: that function waits on the host until the slot's readers have finished.
  bool source_waits_for_readers() const { return source_waits_for_readers_; }
  /// True: the host was far ahead of an on_device source. Free events ran out, so only some of the
  /// batches were timed, and the intervals between the others are unknown.
  bool is_far_ahead() const { return is_far_ahead_; }
  /// True: the consumer's stream was not measured. Then `stream_work` is 0 and must be fitted to
  /// the period.
  bool lacks_device_times() const { return lacks_device_times_; }

  /// Sets `stream_work`, the time of the consumer's stream, for every batch.
  void set_stream_work(double nanoseconds) {
    for (RecordedBatch& batch : batches_) batch.stream_work = nanoseconds;
  }
  /// Replaces the fill and handover times of the batch with the longest sum of the two by the
  /// medians. Returns by how much that sum was longer.
  double forget_longest_fill() {
    const auto took = [](const RecordedBatch& batch) { return batch.fill + batch.handover; };
    RecordedBatch& longest = *std::max_element(
        batches_.begin(), batches_.end(),
        [&](const RecordedBatch& a, const RecordedBatch& b) { return took(a) < took(b); });
    const double time = took(longest);
    longest.fill = medians_.of(batches_, &RecordedBatch::fill);
    longest.handover = medians_.of(batches_, &RecordedBatch::handover);
    return time - took(longest);
  }

 private:
  std::size_t count() const { return batches_.size(); }
  double loop_time(std::size_t k) const { return batches_[k].loop_time(batches_[k + 1]); }
  bool has_present_settings(const RecordedBatch& batch) const {
    return batch.opened >= static_cast<double>(shape_.since);
  }

  void find_leases();
  void spread(double RecordedBatch::*duration);
  void find_steps();
  double readers_done(std::size_t k) const;
  double slot_wanted(std::size_t k) const;
  void reconstruct_device();
  double slot_misses() const;
  void find_lease_end();
  template <class X>
  bool loop_time_follows(X x) const;
  void find_waits();
  void find_device_source();
  void find_handovers();
  void find_issues();

  PipelineShape shape_;
  std::vector<RecordedBatch> batches_;
  Medians medians_;
  std::vector<double> free_;
  ConsumerLoop loop_;
  double period_ = 0, starved_ = -1;
  bool source_queues_ = false, source_waits_for_readers_ = false;
  bool is_end_unclear_ = false, is_far_ahead_ = false, lacks_device_times_ = false;
};

inline bool BatchCosts::load(std::span<const FinishedBatch> batches, const PipelineShape& shape,
                             bool other_end) {
  shape_ = shape;
  record_batches(batches, shape, batches_, medians_);
  if (count() < kMinBatches) return false;
  period_ = stamped_period(batches_, shape.present.workers);
  find_leases();
  if (other_end) loop_.ends_early = !loop_.ends_early;
  find_steps();
  reconstruct_device();
  find_lease_end();
  find_waits();
  if (shape_.on_device) find_device_source();
  find_handovers();
  find_issues();
  return true;
}

// ---- The consumer's leases ----------------------------------------------------------------------

inline void BatchCosts::find_leases() {
  loop_ = {};
  const auto calls = [&](std::size_t k) {
    std::size_t later = 0;
    while (k + later + 1 < count() && batches_[k + later + 1].taken <= batches_[k].released)
      ++later;
    return static_cast<double>(later);
  };
  // The leases of the last batches may have lasted beyond the last recorded call, so only the first
  // half counts.
  const std::size_t known = count() / 2;
  const auto later = static_cast<std::size_t>(medians_.of(known, calls));
  loop_.later_calls = std::min(later, std::max<std::size_t>(1, shape_.present.device_depth) - 1);
  const std::size_t last = loop_.later_calls;
  const double since = medians_.of(
      known, [&](std::size_t k) { return batches_[k].released - batches_[k + last].taken; });
  loop_.after_lease = std::max(0.0, medians_.of(known, [&](std::size_t k) {
    return batches_[k + last + 1].asked - batches_[k].released;
  }));
  // If all slots are leased, a lease that is replaced ends within next().
  loop_.ends_early = later > last || (last > 0 && since < loop_.after_lease);
  constexpr double kClear = 4;
  is_end_unclear_ =
      last > 0 && later == last &&
      std::max(since, loop_.after_lease) < kClear * std::min(since, loop_.after_lease);
  medians_.clear();
  for (const RecordedBatch& batch : batches_)
    if (batch.asked < batch.staged) medians_.add(std::max(0.0, batch.taken - batch.staged));
  loop_.wake = medians_.of_added();
}

// ---- The device ---------------------------------------------------------------------------------

/// Gives the batches that were not timed the times of those that were, in rotation.
inline void BatchCosts::spread(double RecordedBatch::*duration) {
  medians_.clear();
  for (const RecordedBatch& batch : batches_)
    if (batch.*duration >= 0) medians_.add(batch.*duration);
  const std::size_t timed = medians_.added().size();
  std::size_t next = 0;
  for (RecordedBatch& batch : batches_)
    if (double& own = batch.*duration; own < 0)
      own = timed == 0 ? 0 : medians_.added()[next++ % timed];
}

/// Finds the time of the consumer's stream for each batch, and the fraction of time in which that
/// stream waits. If nothing delays the host, the host runs many batches ahead, and only the times
/// of the stream show the period.
inline void BatchCosts::find_steps() {
  std::size_t sources = 0, waits = 0, steps = 0;
  double waited = 0, worked = 0;
  int streams = 1;
  for (const RecordedBatch& batch : batches_) {
    streams = std::max(streams, batch.stream + 1);
    sources += batch.source >= 0;
    waits += batch.wait >= 0;
    steps += batch.step >= 0;
    waited += std::max(0.0, batch.wait);
    worked += std::max(0.0, batch.step);
  }
  waited /= static_cast<double>(std::max<std::size_t>(1, waits)) * streams;
  worked /= static_cast<double>(std::max<std::size_t>(1, steps)) * streams;
  const bool is_ahead =
      shape_.on_device && std::min(waits, steps) >= kMinBatches && period_ < (waited + worked) / 2;
  constexpr double kFarAhead = 0.9;
  is_far_ahead_ = is_ahead && static_cast<double>(std::min({sources, waits, steps})) <
                                  kFarAhead * static_cast<double>(count());
  if (is_ahead || 2 * std::min(waits, steps) > count())
    period_ = std::max(period_, waited + worked);
  starved_ = waits == 0 ? -1 : std::min(1.0, waited / period_);
  lacks_device_times_ = steps == 0 && waits == 0;
  if (steps == 0 && waits > 0)
    for (RecordedBatch& batch : batches_) batch.step = std::max(0.0, period_ - waited) * streams;
  for (const auto duration : {&RecordedBatch::step, &RecordedBatch::copy, &RecordedBatch::transform,
                              &RecordedBatch::source})
    spread(duration);
}

/// Returns when the last reader of the slot of batch k, before that batch, has finished.
inline double BatchCosts::readers_done(std::size_t k) const {
  const std::size_t behind = k + loop_.later_calls;
  if (behind < shape_.present.device_depth) return 0;
  const std::size_t last = behind - shape_.present.device_depth;  // the last batch whose work was
                                                                  // queued before the slot was free
  if (!loop_.ends_early) return batches_[last].consumed();
  return last == 0 ? 0 : std::max(batches_[last - 1].consumed(), batches_[last].arrived);
}

/// Returns when the copy stream could have begun with batch k if it had had a slot.
inline double BatchCosts::slot_wanted(std::size_t k) const {
  if (k == 0) return batches_[0].filled;
  return std::max({batches_[k].filled, batches_[k - 1].staged, batches_[k - 1].arrived});
}

/// Finds when each batch arrived on the device and when the consumer's stream began it.
inline void BatchCosts::reconstruct_device() {
  constexpr double kLatency = 20'000;
  std::array<double, kStreams> left{};
  left.fill(batches_[0].asked);
  for (std::size_t k = 0; k < count(); ++k) {
    RecordedBatch& span = batches_[k];
    const double readers = readers_done(k), before = k == 0 ? 0 : batches_[k - 1].arrived;
    if (shape_.on_device) {
      span.copied = span.arrived =
          std::max(span.filled, std::max(span.opened, readers) + span.source);
    } else {
      span.copied = std::max({span.staged, before, readers}) + span.copy;
      span.arrived = span.copied + span.transform;
    }
    double& worked = left.at(static_cast<std::size_t>(span.stream));
    const double reached = std::max(span.asked, worked);
    if (span.wait > kLatency) {
      // The stream waited, so it began when the batch arrived. For the end of its earlier work and
      // for the end of the slot's readers only the latest possible times are known. The copy did
      // not begin before the wait for the slot began.
      const double wanted = std::max(span.filled, k == 0 ? 0 : batches_[k - 1].staged);
      const double copied =
          shape_.on_device ? span.filled
                           : std::max(span.staged, wanted + span.slot) + span.copy + span.transform;
      span.begun =
          std::max({span.asked + span.wait, copied, std::min(reached + span.wait, span.arrived)});
    } else {
      span.begun = std::max(reached, span.arrived);
    }
    worked = span.consumed();
  }
}

/// Returns the mean difference between the measured waits of the copy stream for slots and the
/// waits that follow from the present assumption about the end of leases.
inline double BatchCosts::slot_misses() const {
  double sum = 0, measured = 1;
  for (std::size_t k = shape_.present.device_depth; k < count(); ++k) {
    const RecordedBatch& span = batches_[k];
    if (span.slot < 0) continue;
    const double through = std::max(span.staged, readers_done(k));
    sum += std::abs(std::max(0.0, through - slot_wanted(k)) - span.slot);
    ++measured;
  }
  return sum / measured;
}

/// If a lease is held over several calls, the stamps do not show well whether it ends before the
/// work on the next batch is queued. The waits for slots show it better, if there are any.
inline void BatchCosts::find_lease_end() {
  constexpr double kClear = 0.5, kLeast = 0.02;  // a fraction of the other one; of a period
  if (loop_.later_calls == 0) return;
  const auto turn_over = [this] {
    loop_.ends_early = !loop_.ends_early;
    reconstruct_device();
  };
  const double as_stamped = slot_misses();
  turn_over();
  const double otherwise = slot_misses();
  const double less = std::min(as_stamped, otherwise), more = std::max(as_stamped, otherwise);
  const bool tells = less < kClear * more && more > kLeast * period_;
  if (!tells || as_stamped == less) turn_over();
  if (tells) is_end_unclear_ = false;
}

// ---- What the loop waits for --------------------------------------------------------------------

/// Returns whether the time of an iteration of the loop grows with x, by a least-squares fit with a
/// slope of about 1. Also returns true if x varies too little to decide.
template <class X>
bool BatchCosts::loop_time_follows(X x) const {
  constexpr double kVaries = 0.02;  // of a period
  constexpr double kFollows = 0.5, kErrors = 2;
  const std::size_t first = 1, last = count() - 1;
  const auto turns = static_cast<double>(last - first);
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0, deviation = 0;
  for (std::size_t k = first; k < last; ++k) {
    mean_x += x(k) / turns;
    mean_y += loop_time(k) / turns;
  }
  for (std::size_t k = first; k < last; ++k) {
    const double dx = x(k) - mean_x, dy = loop_time(k) - mean_y;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
    deviation += std::abs(dx) / turns;  // A single outlier counts little here.
  }
  if (deviation < kVaries * period_) return true;
  const double slope = xy / xx;
  const double standard_error = std::sqrt(std::max(0.0, yy - slope * xy) / (turns - 2) / xx);
  return slope > kFollows || slope + kErrors * standard_error > 1;
}

inline void BatchCosts::find_waits() {
  constexpr double kSeldom = 0.1, kShort = 0.25, kClose = 0.05, kLatency = 50e3;
  const std::size_t turns = count() - 1;
  std::size_t behind = 0;  // the stream still had work when the thread asked for the next batch
  for (std::size_t k = 0; k < turns; ++k)
    behind += batches_[k].consumed() - batches_[k + 1].asked > std::max(kLatency, kClose * period_);
  const bool idle = !lacks_device_times_ && 5 * behind < count();
  LoopWaits for_what = LoopWaits::for_this_step;
  bool follows = false;
  if (lacks_device_times_) {  // A short iteration contains no wait.
    follows = medians_.of(turns, [&](std::size_t k) { return loop_time(k); }) > kShort * period_;
  } else if (idle) {
    // x is the time from the return of next() until the stream began the batch.
    follows = loop_time_follows(
        [&](std::size_t k) { return std::max(0.0, batches_[k].begun - batches_[k].taken); });
  } else {
    for_what = LoopWaits::for_last_step;
    std::size_t before = 0;  // it asked although the previous batch was not done
    for (std::size_t k = 1; k < turns; ++k)
      before += batches_[k + 1].asked < batches_[k - 1].consumed() - kSeldom * period_;
    follows = static_cast<double>(before) <= kSeldom * static_cast<double>(turns) &&
              loop_time_follows([&](std::size_t k) { return batches_[k - 1].step; });
  }
  loop_.waits = follows ? for_what : LoopWaits::for_nothing;
  for (std::size_t k = 0; k < count(); ++k) {
    RecordedBatch& span = batches_[k];
    span.stream_work = span.step;
    if (k == turns) {  // The last batch has no next call.
      span.thread_work = batches_[k - 1].thread_work;
      if (lacks_device_times_ || (idle && loop_.waits == LoopWaits::for_nothing))
        span.stream_work = batches_[k - 1].stream_work;
    } else if (loop_.waits == LoopWaits::for_nothing) {
      span.thread_work = loop_time(k);
      if (idle) span.stream_work = 0;  // Its part of the iteration is unknown.
    } else if (loop_.waits == LoopWaits::for_this_step) {
      span.stream_work = std::max(0.0, batches_[k + 1].asked - std::max(span.begun, span.taken));
    } else if (k > 0) {
      span.thread_work =
          std::max(0.0, batches_[k + 1].asked - std::max(span.taken, batches_[k - 1].consumed()));
    }
  }
  if (loop_.waits == LoopWaits::for_this_step) lacks_device_times_ = false;
  if (loop_.waits == LoopWaits::for_last_step) {  // The delay until the thread sees the end of the
                                                  // device's work is unknown; the smallest one is
                                                  // removed.
    double least = batches_[1].thread_work;
    for (std::size_t k = 1; k < count(); ++k) least = std::min(least, batches_[k].thread_work);
    for (std::size_t k = 1; k < count(); ++k) batches_[k].thread_work -= least;
  }
}

// ---- The workers --------------------------------------------------------------------------------

inline void BatchCosts::find_device_source() {
  source_queues_ = 2 * medians_.of(batches_, &RecordedBatch::fill) <
                   medians_.of(batches_, &RecordedBatch::source);
  std::size_t late = 0, early = 0;
  for (std::size_t k = 0; k < count(); ++k) {
    const double readers = readers_done(k), tolerance = 0.05 * period_;
    late += readers > batches_[k].opened + tolerance;
    early += readers > batches_[k].filled + tolerance;
  }
  source_waits_for_readers_ = 10 * early < late;
  if (source_queues_ || !source_waits_for_readers_) return;
  for (std::size_t k = 0; k < count(); ++k) {
    const double waited = std::max(0.0, readers_done(k) - batches_[k].opened);
    batches_[k].fill =
        std::min(batches_[k].fill, std::max(batches_[k].source, batches_[k].fill - waited));
  }
}

/// Finds the time that a worker needs outside the source: to notice that it can continue, and to
/// hand the batch on. Assigns the recorded batches to workers as a Replay does.
inline void BatchCosts::find_handovers() {
  constexpr double kLongestPoll = 300e3;  // the longest interval between two looks of a worker for
                                          // memory
  const std::size_t workers = std::clamp<std::size_t>(shape_.present.workers, 1, kMostWorkers);
  const auto pieces = static_cast<std::size_t>(shape_.pieces());
  const auto first = free_.begin(), last = first + static_cast<std::ptrdiff_t>(workers);
  std::fill(first, last, 0.0);
  double sum = 0, known = 0;
  for (std::size_t k = 0; k < count(); ++k) {
    RecordedBatch& span = batches_[k];
    const std::size_t depth =
        shape_.on_device ? shape_.present.device_depth : shape_.present.host_depth;
    double memory = 0;
    if (k >= depth)
      memory = shape_.on_device ? batches_[k - depth].released : batches_[k - depth].copied;
    const auto earliest = std::min_element(first, last);
    if (!has_present_settings(span)) {
      *earliest = span.filled;
      continue;
    }
    double opened = std::max(*earliest, memory);
    // The worker waited for memory that came back later than assumed.
    if (opened < span.opened - kLongestPoll) opened = span.opened;
    double filled = 0;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      double& worker = *std::min_element(first, last);
      worker = std::max(worker, opened) + span.fill / static_cast<double>(pieces);
      filled = std::max(filled, worker);
    }
    const double more = span.filled - filled;
    const auto busy = static_cast<double>(std::min(workers, pieces));
    span.handover = span.first_fill ? 0 : more * busy;
    if (pieces > 1) {
      for (auto worker = first; worker != last; ++worker) *worker += more;
    } else {
      *std::find(first, last, filled) = span.filled;
    }
    sum += span.handover;
    ++known;
  }
  const double mean = std::max(0.0, sum / std::max(1.0, known));
  for (RecordedBatch& batch : batches_)
    batch.handover =
        pieces > 1 || !has_present_settings(batch) ? mean : std::max(0.0, batch.handover);
}

/// Finds the time that it takes to queue the copy of a batch, without the waits for the previous
/// batch and for a slot. For the first batches it is unknown when a slot was free; they get the
/// median.
inline void BatchCosts::find_issues() {
  const std::size_t first = std::min(shape_.present.device_depth, count() - 1);
  for (std::size_t k = first; k < count(); ++k) {
    double possible = std::max(batches_[k].filled, batches_[k - 1].staged);
    if (!shape_.on_device) possible = std::max(possible, batches_[k - first].released);
    batches_[k].issue = std::max(0.0, batches_[k].staged - possible);
  }
  const double usual =
      medians_.of(count() - first, [&](std::size_t k) { return batches_[first + k].issue; });
  for (std::size_t k = 0; k < first; ++k) batches_[k].issue = usual;
}

}  // namespace penstock::detail
