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
#include <penstock/detail/observe/batch_cost.hpp>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <span>
#include <vector>

namespace penstock::detail {

class BatchCosts {
 public:
  static constexpr std::size_t kFewest = 8;
  static constexpr std::size_t kMostWorkers = 512;  ///< more of them are taken for so many
  static constexpr int kStreams = 16;  ///< streams that take in turn; more are told apart modulo it

  /// Allocates all that it needs.
  explicit BatchCosts(std::size_t most_batches)
      : most_(most_batches),
        costs_(most_batches),
        spans_(most_batches),
        scratch_(most_batches),
        free_(kMostWorkers) {}

  /// Of the last batches as many as there is room for. False: there are fewer than kFewest.
  bool load(std::span<const FinishedBatch> batches, const PipelineShape& shape);

  /// In the order in which they were delivered.
  std::span<const BatchCost> all() const { return {costs_.data(), count_}; }
  const ConsumerLoop& loop() const { return loop_; }
  /// From one batch to the next, in nanoseconds, as the stamps tell.
  double period() const { return period_; }
  /// The part of its time that the consumer's stream has no work until a batch is there. Negative:
  /// nobody measured it.
  double starved() const { return starved_; }
  /// Of an on_device source: its function queues work on the device and returns before that is
  /// done.
  bool source_queues() const { return source_queues_; }
  /// The same: on the host it waits until the slot's readers are through.
  bool source_waits_for_readers() const { return source_waits_for_readers_; }
  /// Nobody measured the consumer's stream: `device` is 0, and has to be fitted to the period.
  bool lacks_device_times() const { return lacks_device_times_; }

  /// Sets the time of the consumer's stream for every batch.
  void set_device(double nanoseconds) {
    for (std::size_t k = 0; k < count_; ++k) costs_[k].device = nanoseconds;
  }
  /// Sets the source's time for the batch that took longest, and all beside it, to the usual one.
  void forget_longest_fill() {
    const auto longest =
        std::max_element(costs_.begin(), costs_.begin() + static_cast<std::ptrdiff_t>(count_),
                         [](const BatchCost& a, const BatchCost& b) {
                           return a.fill + a.handover < b.fill + b.handover;
                         });
    longest->fill = median([&](std::size_t k) { return costs_[k].fill; });
    longest->handover = median([&](std::size_t k) { return costs_[k].handover; });
  }

 private:
  /// The stamps of a batch without the consumer's pauses, and what is reconstructed of the device.
  struct Span {
    double opened = 0, filled = 0, staged = 0, asked = 0, taken = 0, released = 0;
    double fill = 0;
    int stream = 0;
    double copied = 0;   // its copy was done,
    double arrived = 0;  // and the transform behind it; on_device: the slot was written
    double reached = 0;  // the consumer's stream had done all that was queued before the request
    double begun = 0;    // and had the batch
    DeviceDurations device;
    bool first_fill = false, waited_for_memory = false;
    double worked() const { return begun + static_cast<double>(device.step); }
  };

  template <class ValueOf>
  double median(ValueOf value_of) {
    return median(count_, value_of);
  }
  template <class ValueOf>
  double median(std::size_t count, ValueOf value_of) {
    if (count == 0) return 0;
    for (std::size_t k = 0; k < count; ++k) scratch_[k] = value_of(k);
    const auto middle = scratch_.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(scratch_.begin(), middle,
                     scratch_.begin() + static_cast<std::ptrdiff_t>(count));
    return *middle;
  }
  /// Time on the consumer's thread from one call of next() to the following one.
  double turn(std::size_t k) const { return spans_[k + 1].asked - spans_[k].taken; }

  void copy_stamps(std::span<const FinishedBatch> batches);
  void keep_longest_stretch();
  void replace_first_fills();
  void find_period();
  void find_leases();
  void spread(std::int64_t DeviceDurations::*duration);
  void find_steps();
  double readers_through(std::size_t k) const;
  void find_arrival(std::size_t k);
  double device_lag();
  void reconstruct_device(double lag);
  bool is_idle_when_asked();
  double slope(double (BatchCosts::*x)(std::size_t) const) const;
  double lateness(std::size_t k) const;
  double last_step(std::size_t k) const;
  void find_waits();
  void find_device_source();
  void find_handovers();
  void find_issues();

  const std::size_t most_;
  std::size_t count_ = 0;
  PipelineShape shape_;
  std::vector<BatchCost> costs_;
  std::vector<Span> spans_;
  std::vector<double> scratch_, free_;
  ConsumerLoop loop_;
  double period_ = 0, starved_ = -1, mean_wait_ = -1;
  bool has_steps_ = false, source_queues_ = false, source_waits_for_readers_ = false;
  bool lacks_device_times_ = false;
};

// ---- The stamps ---------------------------------------------------------------------------------

inline bool BatchCosts::load(std::span<const FinishedBatch> batches, const PipelineShape& shape) {
  shape_ = shape;
  copy_stamps(batches);
  if (count_ < kFewest) return false;
  replace_first_fills();
  find_period();
  find_leases();
  find_steps();
  reconstruct_device(0);
  reconstruct_device(device_lag());
  find_waits();
  if (shape_.on_device()) find_device_source();
  find_handovers();
  find_issues();
  return true;
}

/// In the order of delivery.
inline void BatchCosts::copy_stamps(std::span<const FinishedBatch> batches) {
  if (batches.size() > most_) batches = batches.last(most_);
  count_ = batches.size();
  if (count_ < kFewest) return;
  for (std::size_t k = 0; k < count_; ++k) {
    const BatchTimes& times = batches[k].times;
    const auto at = [](Ticks stamp) { return static_cast<double>(stamp); };
    Span& span = spans_[k];
    span = {.opened = at(times.opened),
            .filled = at(times.filled),
            .staged = at(std::max(times.staged, times.filled)),
            .asked = at(times.asked),
            .taken = at(std::max(times.taken, times.asked)),
            .released = at(std::max({times.released, times.taken, times.asked})),
            .fill = at(times.source_time()),
            .stream = times.stream() % kStreams,
            .device = batches[k].device,
            .first_fill = times.first_of_worker(),
            .waited_for_memory = times.opened > times.wanted};
  }
  const auto end = spans_.begin() + static_cast<std::ptrdiff_t>(count_);
  std::sort(spans_.begin(), end, [](const Span& a, const Span& b) { return a.taken < b.taken; });
  keep_longest_stretch();
}

/// Of the stretches between two pauses of the consumer (a validation, a checkpoint) the longest is
/// kept, without its start: there the queues are as full as the pause has left them, or as empty as
/// they are when a run begins.
inline void BatchCosts::keep_longest_stretch() {
  constexpr double kFarLonger = 32, kShortest = 1e6;
  const double step =
      median(count_ - 1, [&](std::size_t k) { return spans_[k + 1].asked - spans_[k].asked; });
  std::size_t begin = 0, first = 0, length = 0;
  for (std::size_t k = 0; k < count_; ++k) {
    const bool ends = k + 1 == count_ || turn(k) > std::max(kShortest, kFarLonger * step);
    if (!ends) continue;
    spans_[k].device.step = -1;  // It may include the pause.
    if (k + 1 - begin > length) {
      first = begin;
      length = k + 1 - begin;
    }
    begin = k + 1;
  }
  const bool starts = first > 0 || spans_[0].first_fill;
  const std::size_t enough = length > kFewest ? length - kFewest : 0;
  const std::size_t start =
      starts ? std::min({shape_.host_depth + shape_.device_depth, length / 3, enough}) : 0;
  const auto kept = spans_.begin() + static_cast<std::ptrdiff_t>(first + start);
  count_ = length - start;
  std::move(kept, kept + static_cast<std::ptrdiff_t>(count_), spans_.begin());
}

/// A worker's first batch, where it took far longer than the others: it opened files, or filled a
/// cache.
inline void BatchCosts::replace_first_fills() {
  constexpr double kFarLonger = 4;
  const double usual = median([&](std::size_t k) { return spans_[k].fill; });
  for (std::size_t k = 0; k < count_; ++k)
    if (spans_[k].first_fill && spans_[k].fill > kFarLonger * usual) spans_[k].fill = usual;
}

/// The slowest of the rates at which batches were filled, staged and taken: while the consumer
/// takes what was ready before, or fills its queue, the others tell how long that will last.
inline void BatchCosts::find_period() {
  const auto workers = static_cast<std::size_t>(std::max(1, shape_.workers));
  const std::size_t some = std::clamp<std::size_t>(workers, 1, count_ / 4);
  period_ = 1;
  for (double Span::*stamp : {&Span::filled, &Span::staged, &Span::taken}) {
    double sum = 0;  // Workers may fill several batches at a time: the mean of some.
    for (std::size_t k = 0; k < some; ++k) sum += spans_[count_ - 1 - k].*stamp - spans_[k].*stamp;
    period_ =
        std::max(period_, sum / static_cast<double>(some) / static_cast<double>(count_ - some));
  }
}

// ---- The consumer's leases ----------------------------------------------------------------------

inline void BatchCosts::find_leases() {
  loop_ = {};
  const auto calls = [&](std::size_t k) {
    std::size_t later = 0;
    while (k + later + 1 < count_ && spans_[k + later + 1].taken <= spans_[k].released) ++later;
    return static_cast<double>(later);
  };
  // The last ones may have outlived calls that are not recorded.
  const std::size_t known = count_ / 2;
  const auto later = static_cast<std::size_t>(median(known, calls));
  loop_.later_calls = std::min(later, std::max<std::size_t>(1, shape_.device_depth) - 1);
  const std::size_t last = loop_.later_calls;
  const double since =
      median(known, [&](std::size_t k) { return spans_[k].released - spans_[k + last].taken; });
  loop_.after_lease = std::max(0.0, median(known, [&](std::size_t k) {
                                 return spans_[k + last + 1].asked - spans_[k].released;
                               }));
  if (later > last)  // All slots are leased, and one that is replaced ends within next().
    loop_.ends_early = true;
  else
    loop_.ends_early = last > 0 && since <= loop_.after_lease / 4;
  std::size_t waited = 0;
  for (std::size_t k = 0; k < count_; ++k)
    if (spans_[k].asked < spans_[k].staged)
      scratch_[waited++] = std::max(0.0, spans_[k].taken - spans_[k].staged);
  if (waited == 0) return;
  std::nth_element(scratch_.begin(), scratch_.begin() + static_cast<std::ptrdiff_t>(waited / 2),
                   scratch_.begin() + static_cast<std::ptrdiff_t>(waited));
  loop_.wake = scratch_[waited / 2];
}

// ---- The device ---------------------------------------------------------------------------------

/// A batch that was not timed takes what one that was took: each of these in its turn.
inline void BatchCosts::spread(std::int64_t DeviceDurations::*duration) {
  std::size_t timed = 0;
  for (std::size_t k = 0; k < count_; ++k)
    if (spans_[k].device.*duration >= 0)
      scratch_[timed++] = static_cast<double>(spans_[k].device.*duration);
  std::size_t next = 0;
  for (std::size_t k = 0; k < count_; ++k) {
    std::int64_t& own = spans_[k].device.*duration;
    if (own < 0) own = timed == 0 ? 0 : static_cast<std::int64_t>(scratch_[next++ % timed]);
  }
}

/// The time of the consumer's stream for each batch, and its waits. Where nothing holds the host
/// up, it is any number of batches ahead, and the stream alone knows the period.
inline void BatchCosts::find_steps() {
  std::size_t waits = 0, steps = 0;
  double waited = 0, worked = 0;
  int streams = 1;
  for (std::size_t k = 0; k < count_; ++k) {
    const DeviceDurations& device = spans_[k].device;
    streams = std::max(streams, spans_[k].stream + 1);
    waits += device.wait >= 0;
    steps += device.step >= 0;
    waited += static_cast<double>(std::max<std::int64_t>(0, device.wait));
    worked += static_cast<double>(std::max<std::int64_t>(0, device.step));
  }
  waited /= static_cast<double>(std::max<std::size_t>(1, waits)) * streams;
  worked /= static_cast<double>(std::max<std::size_t>(1, steps)) * streams;
  if (2 * std::min(waits, steps) > count_) period_ = std::max(period_, waited + worked);
  starved_ = waits == 0 ? -1 : std::min(1.0, waited / period_);
  lacks_device_times_ = steps == 0 && waits == 0;
  if (steps == 0 && waits > 0)
    for (std::size_t k = 0; k < count_; ++k)
      spans_[k].device.step = std::llround(std::max(0.0, period_ - waited) * streams);
  spread(&DeviceDurations::step);
  spread(&DeviceDurations::copy);
  spread(&DeviceDurations::transform);
  spread(&DeviceDurations::source);
}

/// When the readers of the slot that batch k is written into are through.
inline double BatchCosts::readers_through(std::size_t k) const {
  const std::size_t behind = k + loop_.later_calls;
  if (behind < shape_.device_depth) return 0;
  const std::size_t last = behind - shape_.device_depth;  // the last batch that was queued before
  if (!loop_.ends_early) return spans_[last].worked();
  return last == 0 ? 0 : std::max(spans_[last - 1].worked(), spans_[last].arrived);
}

inline void BatchCosts::find_arrival(std::size_t k) {
  Span& span = spans_[k];
  const double readers = readers_through(k), before = k == 0 ? 0 : spans_[k - 1].arrived;
  if (shape_.on_device()) {
    const double begun = std::max(span.opened, readers);
    span.copied = span.arrived =
        std::max(span.filled, begun + static_cast<double>(span.device.source));
  } else {
    const double begun = std::max({span.staged, before, readers});
    span.copied = begun + static_cast<double>(span.device.copy);
    span.arrived = span.copied + static_cast<double>(span.device.transform);
  }
}

/// How much later than reconstructed the copies were done. A worker that waited for a block had it
/// when its copy was done.
inline double BatchCosts::device_lag() {
  std::size_t waits = 0;
  if (!shape_.on_device())
    for (std::size_t k = shape_.host_depth; k < count_; ++k)
      if (spans_[k].waited_for_memory)
        scratch_[waits++] = spans_[k].opened - spans_[k - shape_.host_depth].copied;
  if (waits < count_ / 4) return 0;
  const auto middle = scratch_.begin() + static_cast<std::ptrdiff_t>(waits / 2);
  std::nth_element(scratch_.begin(), middle, scratch_.begin() + static_cast<std::ptrdiff_t>(waits));
  return std::max(0.0, *middle);
}

/// When each batch arrived on the device, and when the consumer's stream came to it and left it.
/// `lag`: from when the first batch was asked for to when the stream came to it.
inline void BatchCosts::reconstruct_device(double lag) {
  constexpr std::int64_t kLatency = 20'000;
  std::array<double, kStreams> left{};
  left.fill(spans_[0].asked + lag);
  for (std::size_t k = 0; k < count_; ++k) {
    find_arrival(k);
    Span& span = spans_[k];
    double& worked = left.at(static_cast<std::size_t>(span.stream));
    span.reached = std::max(span.asked, worked);
    if (span.device.wait > kLatency) {
      // It began when the batch arrived. Neither how long it had worked nor when the readers of the
      // slot were through is known better than as a latest time.
      const auto wait = static_cast<double>(span.device.wait);
      const double copied =
          shape_.on_device()
              ? span.filled
              : span.staged + static_cast<double>(span.device.copy + span.device.transform);
      span.begun =
          std::max({span.asked + wait, copied, std::min(span.reached + wait, span.arrived)});
    } else {
      span.begun = std::max(span.reached, span.arrived);
    }
    worked = span.worked();
  }
}

// ---- What the loop waits for --------------------------------------------------------------------

/// The consumer's stream has nothing left to do when the thread asks for the next batch.
inline bool BatchCosts::is_idle_when_asked() {
  constexpr double kClose = 0.05, kLatency = 50e3;
  std::size_t behind = 0;
  for (std::size_t k = 0; k + 1 < count_; ++k)
    behind += spans_[k].worked() - spans_[k + 1].asked > std::max(kLatency, kClose * period_);
  return 5 * behind < count_;
}

/// How late a batch came to the consumer's stream, as its thread sees it.
inline double BatchCosts::lateness(std::size_t k) const {
  return std::max(0.0, spans_[k].begun - spans_[k].taken);
}
inline double BatchCosts::last_step(std::size_t k) const {
  return k == 0 ? 0 : static_cast<double>(spans_[k - 1].device.step);
}

/// Of the turn of the loop over x, by least squares. 1 where x hardly varies.
inline double BatchCosts::slope(double (BatchCosts::*x)(std::size_t) const) const {
  constexpr double kVaries = 0.02;  // of a period
  const std::size_t first = 1, last = count_ - 1;
  const auto turns = static_cast<double>(last - first);
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (std::size_t k = first; k < last; ++k) {
    mean_x += (this->*x)(k) / turns;
    mean_y += turn(k) / turns;
  }
  for (std::size_t k = first; k < last; ++k) {
    const double dx = (this->*x)(k)-mean_x;
    xx += dx * dx;
    xy += dx * (turn(k) - mean_y);
  }
  return std::sqrt(xx / turns) < kVaries * period_ ? 1 : xy / xx;
}

inline void BatchCosts::find_waits() {
  constexpr double kFollows = 0.5, kSeldom = 0.1, kShort = 0.25;
  const std::size_t turns = count_ - 1;
  const bool idle = !lacks_device_times_ && is_idle_when_asked();
  if (lacks_device_times_) {  // A turn that is short can wait for nothing.
    const double turn_time = median(turns, [&](std::size_t k) { return turn(k); });
    loop_.waits = turn_time > kShort * period_ ? LoopWaits::for_this_step : LoopWaits::for_nothing;
  } else if (idle) {
    loop_.waits =
        slope(&BatchCosts::lateness) > kFollows ? LoopWaits::for_this_step : LoopWaits::for_nothing;
  } else {
    std::size_t before = 0;  // It asked though the last step was not done.
    for (std::size_t k = 1; k < turns; ++k)
      before += spans_[k + 1].asked < spans_[k - 1].worked() - kSeldom * period_;
    const bool follows = static_cast<double>(before) <= kSeldom * static_cast<double>(turns) &&
                         slope(&BatchCosts::last_step) > kFollows;
    loop_.waits = follows ? LoopWaits::for_last_step : LoopWaits::for_nothing;
  }
  for (std::size_t k = 0; k < count_; ++k) {
    const Span& span = spans_[k];
    BatchCost& cost = costs_[k];
    cost = {.copy = static_cast<double>(span.device.copy),
            .transform = static_cast<double>(span.device.transform),
            .source_work = static_cast<double>(span.device.source),
            .device = static_cast<double>(span.device.step),
            .stream = span.stream};
    const double asked = k < turns ? spans_[k + 1].asked : 0;
    if (loop_.waits == LoopWaits::for_nothing) {
      cost.host = k < turns ? turn(k) : costs_[k - 1].host;
      if (idle) cost.device = 0;  // How much of the turn it is, nobody can tell.
    } else if (loop_.waits == LoopWaits::for_this_step) {
      if (k < turns) cost.device = std::max(0.0, asked - std::max(span.begun, span.taken));
      if (lacks_device_times_ && k == turns) cost.device = costs_[k - 1].device;
    } else if (k > 0) {
      cost.host = k < turns ? std::max(0.0, asked - std::max(span.taken, spans_[k - 1].worked()))
                            : costs_[k - 1].host;
    }
  }
  if (loop_.waits == LoopWaits::for_this_step) lacks_device_times_ = false;
  if (loop_.waits == LoopWaits::for_last_step) {  // By how much the device was later is unknown.
    double least = costs_[1].host;
    for (std::size_t k = 1; k < count_; ++k) least = std::min(least, costs_[k].host);
    for (std::size_t k = 1; k < count_; ++k) costs_[k].host -= least;
  }
}

// ---- The workers --------------------------------------------------------------------------------

inline void BatchCosts::find_device_source() {
  const double on_host = median([&](std::size_t k) { return spans_[k].fill; });
  source_queues_ = 2 * on_host < median([&](std::size_t k) { return costs_[k].source_work; });
  std::size_t late = 0, early = 0;
  for (std::size_t k = 0; k < count_; ++k) {
    const double readers = readers_through(k), tolerance = 0.05 * period_;
    late += readers > spans_[k].opened + tolerance;
    early += readers > spans_[k].filled + tolerance;
  }
  source_waits_for_readers_ = 10 * early < late;
  if (source_queues_ || !source_waits_for_readers_) return;
  for (std::size_t k = 0; k < count_; ++k) {
    const double waited = std::max(0.0, readers_through(k) - spans_[k].opened);
    spans_[k].fill =
        std::min(spans_[k].fill, std::max(costs_[k].source_work, spans_[k].fill - waited));
  }
}

/// What a worker needs beside its time in the source, to find that it may go on, and to hand the
/// batch on: the recorded batches are dealt out to workers as a Replay does it.
inline void BatchCosts::find_handovers() {
  constexpr double kLongestPoll = 300e3;  // A worker looks again for memory as often as that.
  const auto workers =
      std::clamp<std::size_t>(static_cast<std::size_t>(shape_.workers), 1, kMostWorkers);
  const auto pieces = static_cast<std::size_t>(std::max(1, shape_.pieces));
  const auto first = free_.begin(), last = first + static_cast<std::ptrdiff_t>(workers);
  std::fill(first, last, 0.0);
  double sum = 0;
  for (std::size_t k = 0; k < count_; ++k) {
    const Span& span = spans_[k];
    const std::size_t depth = shape_.on_device() ? shape_.device_depth : shape_.host_depth;
    double memory = 0;
    if (k >= depth)
      memory = shape_.on_device() ? spans_[k - depth].released : spans_[k - depth].copied;
    const auto earliest = std::min_element(first, last);
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
    costs_[k].fill = span.fill;
    costs_[k].handover = span.first_fill ? 0 : more * busy;
    if (pieces > 1) {
      for (auto worker = first; worker != last; ++worker) *worker += more;
    } else {
      *std::find(first, last, filled) = span.filled;
    }
    sum += costs_[k].handover;
  }
  const double mean = std::max(0.0, sum / static_cast<double>(count_));
  for (std::size_t k = 0; k < count_; ++k) {
    double& own = costs_[k].handover;
    own = pieces > 1 ? mean : std::max(0.0, own);
  }
}

/// What it takes to queue a batch's copy, beside the waits for the batch before and for a slot. Of
/// the first ones, nobody knows when there was a slot.
inline void BatchCosts::find_issues() {
  const std::size_t first = std::min(shape_.device_depth, count_ - 1);
  for (std::size_t k = first; k < count_; ++k) {
    double possible = std::max(spans_[k].filled, spans_[k - 1].staged);
    if (!shape_.on_device()) possible = std::max(possible, spans_[k - first].released);
    costs_[k].issue = std::max(0.0, spans_[k].staged - possible);
  }
  const double usual =
      median(count_ - first, [&](std::size_t k) { return costs_[first + k].issue; });
  for (std::size_t k = 0; k < first; ++k) costs_[k].issue = usual;
}

}  // namespace penstock::detail
