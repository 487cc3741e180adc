// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchCosts: what each recorded batch cost at each step of its route, without its waits for other
// batches. It takes the stamps of finished batches and what was timed on the device, cuts the
// consumer's pauses out, reconstructs when the device copied and the consumer's stream worked, and
// tells how the consumer's loop works: whom it waits for, and when its leases end. A Replay puts
// the waits back in, with other settings.

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

namespace penstock::detail {

/// What the consumer's thread waits for before it asks for the next batch.
enum class LoopWaits {
  for_this_step,  ///< its stream's work on the batch that it has
  for_last_step,  ///< the work on the batch before that
  for_nothing,
};

/// How the consumer's loop works.
struct ConsumerLoop {
  LoopWaits waits = LoopWaits::for_nothing;
  /// Later calls of next() that return before a lease ends: 0 where each turn of the loop ends its
  /// own.
  std::size_t later_calls = 0;
  /// The lease ends as soon as the last of these calls returns, before work on that batch is
  /// queued: `lease = prefetcher.next(stream)`.
  bool ends_early = false;
  double after_lease = 0;  ///< from a lease's end to the next call of next()
  double wake = 0;         ///< from when a batch that next() waits for is staged to its return
};

class BatchCosts {
 public:
  static constexpr std::size_t kFewest = RecordedBatch::kFewest;
  static constexpr std::size_t kMostWorkers = 512;  ///< more of them are taken for so many
  static constexpr int kStreams = RecordedBatch::kStreams;

  /// Allocates all that so many batches need.
  explicit BatchCosts(std::size_t capacity) : medians_(capacity), free_(kMostWorkers) {
    batches_.reserve(capacity);
  }

  /// Takes batches that have ended. False: there are fewer than kFewest. With `other_end`, leases
  /// end where they seem not to.
  bool load(std::span<const FinishedBatch> batches, const PipelineShape& shape,
            bool other_end = false);
  /// The stamps do not tell whether a lease ends before the step of the next batch is queued, or
  /// behind it. The other load tells whether that explains the period better.
  bool is_end_unclear() const { return is_end_unclear_; }

  /// In the order in which they were delivered.
  std::span<const RecordedBatch> all() const { return batches_; }
  const PipelineShape& shape() const { return shape_; }
  const ConsumerLoop& loop() const { return loop_; }
  /// From one batch to the next, in nanoseconds, as the stamps tell.
  double period() const { return period_; }
  /// The part of its time that the consumer's stream has no work until a batch is there. It is
  /// negative where nobody measured it.
  double starved() const { return starved_; }
  /// The function of an on_device source queues work on the device, and returns before that is
  /// done.
  bool source_queues() const { return source_queues_; }
  /// That function waits on the host until the slot's readers are through.
  bool source_waits_for_readers() const { return source_waits_for_readers_; }
  /// The host was far ahead of an on_device source, and only a part of the batches was timed, while
  /// there were free events. Nobody knows how the others followed each other.
  bool is_far_ahead() const { return is_far_ahead_; }
  /// Nobody measured the consumer's stream: `device` is 0, and has to be fitted to the period.
  bool lacks_device_times() const { return lacks_device_times_; }

  /// Sets the time of the consumer's stream for every batch.
  void set_device(double nanoseconds) {
    for (RecordedBatch& batch : batches_) batch.device = nanoseconds;
  }
  /// Sets the source's time for the batch that took longest, and all beside it, to the usual one.
  /// Returns by how much it was longer.
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
  double turn(std::size_t k) const { return batches_[k].turn(batches_[k + 1]); }
  bool has_present_settings(const RecordedBatch& batch) const {
    return batch.opened >= static_cast<double>(shape_.since);
  }

  void find_leases();
  void spread(double RecordedBatch::*duration);
  void find_steps();
  double readers_through(std::size_t k) const;
  double slot_wanted(std::size_t k) const;
  void reconstruct_device();
  double slot_misses() const;
  void find_lease_end();
  template <class X>
  bool turn_follows(X x) const;
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
  if (count() < kFewest) return false;
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
  // The last ones may have outlived calls that are not recorded.
  const std::size_t known = count() / 2;
  const auto later = static_cast<std::size_t>(medians_.of(known, calls));
  loop_.later_calls = std::min(later, std::max<std::size_t>(1, shape_.present.device_depth) - 1);
  const std::size_t last = loop_.later_calls;
  const double since = medians_.of(
      known, [&](std::size_t k) { return batches_[k].released - batches_[k + last].taken; });
  loop_.after_lease = std::max(0.0, medians_.of(known, [&](std::size_t k) {
    return batches_[k + last + 1].asked - batches_[k].released;
  }));
  // Where all slots are leased, a lease that is replaced ends within next().
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

/// Gives batches that were not timed the times of those that were, each of these in its turn.
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

/// Finds the time of the consumer's stream for each batch, and its waits. Where nothing holds the
/// host up, it is any number of batches ahead, and the stream alone knows the period.
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
      shape_.on_device && std::min(waits, steps) >= kFewest && period_ < (waited + worked) / 2;
  constexpr double kMost = 0.9;
  is_far_ahead_ = is_ahead && static_cast<double>(std::min({sources, waits, steps})) <
                                  kMost * static_cast<double>(count());
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

/// When the readers of the slot that batch k is written into are through.
inline double BatchCosts::readers_through(std::size_t k) const {
  const std::size_t behind = k + loop_.later_calls;
  if (behind < shape_.present.device_depth) return 0;
  const std::size_t last = behind - shape_.present.device_depth;  // that was queued before
  if (!loop_.ends_early) return batches_[last].worked();
  return last == 0 ? 0 : std::max(batches_[last - 1].worked(), batches_[last].arrived);
}

/// When the copy stream could have begun with batch k, had it had a slot.
inline double BatchCosts::slot_wanted(std::size_t k) const {
  if (k == 0) return batches_[0].filled;
  return std::max({batches_[k].filled, batches_[k - 1].staged, batches_[k - 1].arrived});
}

/// Finds when each batch arrived on the device, and when the consumer's stream came to it and left.
inline void BatchCosts::reconstruct_device() {
  constexpr double kLatency = 20'000;
  std::array<double, kStreams> left{};
  left.fill(batches_[0].asked);
  for (std::size_t k = 0; k < count(); ++k) {
    RecordedBatch& span = batches_[k];
    const double readers = readers_through(k), before = k == 0 ? 0 : batches_[k - 1].arrived;
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
      // It began when the batch arrived. Neither how long it had worked nor when the readers of the
      // slot were through is known better than as a latest time. The copy began no earlier than the
      // slot was waited for.
      const double wanted = std::max(span.filled, k == 0 ? 0 : batches_[k - 1].staged);
      const double copied =
          shape_.on_device ? span.filled
                           : std::max(span.staged, wanted + span.slot) + span.copy + span.transform;
      span.begun =
          std::max({span.asked + span.wait, copied, std::min(reached + span.wait, span.arrived)});
    } else {
      span.begun = std::max(reached, span.arrived);
    }
    worked = span.worked();
  }
}

/// By how much the waits of the copy stream for slots are from what was measured, on average, if
/// leases end as the loop's are taken to end.
inline double BatchCosts::slot_misses() const {
  double sum = 0, measured = 1;
  for (std::size_t k = shape_.present.device_depth; k < count(); ++k) {
    const RecordedBatch& span = batches_[k];
    if (span.slot < 0) continue;
    const double through = std::max(span.staged, readers_through(k));
    sum += std::abs(std::max(0.0, through - slot_wanted(k)) - span.slot);
    ++measured;
  }
  return sum / measured;
}

/// Where a lease is held over several calls, the stamps tell poorly whether it ends before the work
/// on the next batch is queued. The waits for slots tell it better, where there are any.
inline void BatchCosts::find_lease_end() {
  constexpr double kClear = 0.5, kLeast = 0.02;  // of the other one; of a period
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

/// Whether a turn of the loop takes longer by what x is more, by least squares. Where x varies too
/// little to tell, it does.
template <class X>
bool BatchCosts::turn_follows(X x) const {
  constexpr double kVaries = 0.02;  // of a period
  constexpr double kFollows = 0.5, kErrors = 2;
  const std::size_t first = 1, last = count() - 1;
  const auto turns = static_cast<double>(last - first);
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0, deviation = 0;
  for (std::size_t k = first; k < last; ++k) {
    mean_x += x(k) / turns;
    mean_y += turn(k) / turns;
  }
  for (std::size_t k = first; k < last; ++k) {
    const double dx = x(k) - mean_x, dy = turn(k) - mean_y;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
    deviation += std::abs(dx) / turns;  // One batch that is far off counts little here.
  }
  if (deviation < kVaries * period_) return true;
  const double slope = xy / xx;
  const double standard_error = std::sqrt(std::max(0.0, yy - slope * xy) / (turns - 2) / xx);
  return slope > kFollows || slope + kErrors * standard_error > 1;
}

inline void BatchCosts::find_waits() {
  constexpr double kSeldom = 0.1, kShort = 0.25, kClose = 0.05, kLatency = 50e3;
  const std::size_t turns = count() - 1;
  std::size_t behind = 0;  // The stream had something left to do when the thread asked.
  for (std::size_t k = 0; k < turns; ++k)
    behind += batches_[k].worked() - batches_[k + 1].asked > std::max(kLatency, kClose * period_);
  const bool idle = !lacks_device_times_ && 5 * behind < count();
  LoopWaits for_what = LoopWaits::for_this_step;
  bool follows = false;
  if (lacks_device_times_) {  // A turn that is short can wait for nothing.
    follows = medians_.of(turns, [&](std::size_t k) { return turn(k); }) > kShort * period_;
  } else if (idle) {
    // How late a batch came to the consumer's stream, as its thread sees it.
    follows = turn_follows(
        [&](std::size_t k) { return std::max(0.0, batches_[k].begun - batches_[k].taken); });
  } else {
    for_what = LoopWaits::for_last_step;
    std::size_t before = 0;  // It asked though the last step was not done.
    for (std::size_t k = 1; k < turns; ++k)
      before += batches_[k + 1].asked < batches_[k - 1].worked() - kSeldom * period_;
    follows = static_cast<double>(before) <= kSeldom * static_cast<double>(turns) &&
              turn_follows([&](std::size_t k) { return batches_[k - 1].step; });
  }
  loop_.waits = follows ? for_what : LoopWaits::for_nothing;
  for (std::size_t k = 0; k < count(); ++k) {
    RecordedBatch& span = batches_[k];
    span.device = span.step;
    if (k == turns) {  // The loop did not ask again.
      span.host = batches_[k - 1].host;
      if (lacks_device_times_ || (idle && loop_.waits == LoopWaits::for_nothing))
        span.device = batches_[k - 1].device;
    } else if (loop_.waits == LoopWaits::for_nothing) {
      span.host = turn(k);
      if (idle) span.device = 0;  // How much of the turn it is, nobody can tell.
    } else if (loop_.waits == LoopWaits::for_this_step) {
      span.device = std::max(0.0, batches_[k + 1].asked - std::max(span.begun, span.taken));
    } else if (k > 0) {
      span.host =
          std::max(0.0, batches_[k + 1].asked - std::max(span.taken, batches_[k - 1].worked()));
    }
  }
  if (loop_.waits == LoopWaits::for_this_step) lacks_device_times_ = false;
  if (loop_.waits == LoopWaits::for_last_step) {  // By how much the device was later is unknown.
    double least = batches_[1].host;
    for (std::size_t k = 1; k < count(); ++k) least = std::min(least, batches_[k].host);
    for (std::size_t k = 1; k < count(); ++k) batches_[k].host -= least;
  }
}

// ---- The workers --------------------------------------------------------------------------------

inline void BatchCosts::find_device_source() {
  source_queues_ = 2 * medians_.of(batches_, &RecordedBatch::fill) <
                   medians_.of(batches_, &RecordedBatch::source);
  std::size_t late = 0, early = 0;
  for (std::size_t k = 0; k < count(); ++k) {
    const double readers = readers_through(k), tolerance = 0.05 * period_;
    late += readers > batches_[k].opened + tolerance;
    early += readers > batches_[k].filled + tolerance;
  }
  source_waits_for_readers_ = 10 * early < late;
  if (source_queues_ || !source_waits_for_readers_) return;
  for (std::size_t k = 0; k < count(); ++k) {
    const double waited = std::max(0.0, readers_through(k) - batches_[k].opened);
    batches_[k].fill =
        std::min(batches_[k].fill, std::max(batches_[k].source, batches_[k].fill - waited));
  }
}

/// Finds what a worker needs beside its time in the source, to find that it may go on, and to hand
/// the batch on. The recorded batches are dealt out to workers as a Replay does it.
inline void BatchCosts::find_handovers() {
  constexpr double kLongestPoll = 300e3;  // A worker looks again for memory as often as that.
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
    // It waited for memory that came back later than it seems.
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

/// Finds what it takes to queue a batch's copy, beside the waits for the batch before and for a
/// slot. Nobody knows when there was a slot for the first ones.
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
