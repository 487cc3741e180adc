// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tuner: from what was counted, how many workers run and how many batches have memory. It reads no
// clock and calls nobody: a pure function of the counts, one look after the other. The method, and
// where it is from, is in tune.hpp.
//
// A look ends a window of some batches. A window in which the consumer waited asks for more: for
// workers if those that run were busy, for depth if they waited too, in turn. A step up is on
// trial: the next window shows whether it did what it was made for. A step down needs several
// windows without a wait.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <penstock/tuning.hpp>
#include <utility>

namespace penstock::detail {

struct TuneSettings {
  int workers = 1;        ///< that run
  std::size_t depth = 1;  ///< batches that have memory, before the consumer's own
  friend bool operator==(const TuneSettings&, const TuneSettings&) = default;
};

struct TuneLimits {
  TuneSettings most;
  TuneKnob depth_is = TuneKnob::host_depth;
  /// The depth for w workers: this for each worker (0: all fill the same batch), and `beside`.
  std::size_t for_each_worker = 1, beside = 2;
  int cores = 1;  ///< that the process may use
};

/// Sums since the construction.
struct TuneCounts {
  using Nanoseconds = std::chrono::nanoseconds;
  std::uint64_t delivered = 0;           ///< batches
  Nanoseconds consuming{0}, waiting{0};  ///< of the consumer
  std::uint64_t filled = 0;              ///< batches
  Nanoseconds filling{0};                ///< of all workers, for the batches in `filled`
  Nanoseconds workers_waiting{0};        ///< of those that run, for memory
  Nanoseconds cpu{0};                    ///< of all workers
  std::uint64_t consumed_on_device = 0;  ///< batches; 0: their times are not known
  Nanoseconds consuming_on_device{0};
  Nanoseconds device_busy{0}, device_idle{0};  ///< of the copy stream, by samples; 0: not known
};

/// The changes of one look: of the workers, of the depth, or of both.
struct TuneChanges {
  std::array<TuneDecision, 2> made;
  std::size_t count = 0;
};

class Tuner {
 public:
  Tuner(const TuneLimits& limits, const TuneSettings& start)
      : limits_(limits), now_(start), extra_(difference(start.depth, base(start.workers))) {}

  const TuneSettings& settings() const { return now_; }

  /// After each delivery, with the consumer's two sums. True: it is time for a look.
  bool count_take(std::chrono::nanoseconds consuming, std::chrono::nanoseconds waiting) {
    longest_wait_ = std::max(longest_wait_, waiting - waiting_);
    waiting_ = waiting;
    ++takes_;
    if (to_skip_ > 0) return takes_ >= to_skip_;
    // Workers that began together come back together: whole rounds of them make a steady rate.
    return takes_ >= takes_wanted_ && takes_ % round(now_.workers) == 0 &&
           consuming + waiting - begun_at_ >= kShortest;
  }
  /// At each take: `count_ready(most)` batches, up to `most`, are there for the next ones.
  template <class CountReady>
  void note_ready(CountReady&& count_ready) {
    least_ready_ = std::min(least_ready_, count_ready(least_ready_));
  }

  TuneChanges look(const TuneCounts& counts) {
    TuneChanges changes;
    if (to_skip_ == 0) {
      decide(rates(counts), changes);
      // Nothing was changed.
      if (to_skip_ == 0 && takes_wanted_ <= takes_) open(counts);
    } else {
      start_afresh();
      open(counts);
    }
    return changes;
  }
  /// Memory for one more batch, for good: the consumer keeps one, or it was lost.
  TuneChanges add_depth(std::uint64_t delivered, TuneReason reason) {
    TuneChanges changes;
    if (now_.depth == limits_.most.depth) return changes;
    ++kept_;
    changes.made[changes.count++] = {.batch = delivered,
                                     .knob = limits_.depth_is,
                                     .reason = reason,
                                     .from = now_.depth,
                                     .to = now_.depth + 1};
    ++now_.depth;
    return changes;
  }
  /// What is counted from here on has nothing to do with what was: forgets the window and a trial.
  void restart() {
    trial_ = {};
    skip(1);
  }

 private:
  static constexpr double kStarved = 0.03;  // the consumer waits for more than this part of time
  // Workers are saturated if they wait for less than kHardlyIdle of their time, or if more than
  // kSaturated of them are busy.
  static constexpr double kHardlyIdle = 0.12, kSaturated = 0.9;
  static constexpr double kTarget = 0.95;   // how busy workers are to be
  static constexpr double kSlower = 1.15;   // a batch takes longer, beyond noise
  static constexpr int kMostPatience = 64;  // windows
  static constexpr std::uint64_t kWindow = 8;
  static constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(10);

  /// Of a window; times in ns for a batch.
  struct Rates {
    std::uint64_t batch = 0;
    double period = 0, consumer = 0, source = 0, cpu = 0;
    double starved = 0;  ///< part of its time that the consumer waited while the device had no work
    double demand = 0;   ///< workers that were busy, on average
    double idle = 0;     ///< part of their time that the workers waited for memory
  };
  enum class Trial { none, workers, workers_for_slower_source, fewer_workers, depth };
  struct OnTrial {
    Trial what = Trial::none;
    TuneSettings before{};
    std::ptrdiff_t extra = 0;
    double period = 0, predicted = 0, starved = 0, source = 0;
    // Sums over the windows that it has been on trial.
    int windows = 0;
    double waited = 0, took = 0;
  };
  /// How many windows of evidence a step needs; twice as many after one that was taken back.
  struct Patience {
    int needed, left = 0;
    void begin() {
      left = needed;
      lengthen();
    }
    void lengthen() { needed = std::min(2 * needed, kMostPatience); }
    void pass() { left = std::max(0, left - 1); }
  };

  static std::ptrdiff_t difference(std::size_t a, std::size_t b) {
    return static_cast<std::ptrdiff_t>(a) - static_cast<std::ptrdiff_t>(b);
  }
  static double ratio(double part, double whole) { return whole <= 0 ? 0 : part / whole; }
  bool is_saturated(const Rates& rates) const {
    return rates.idle <= kHardlyIdle || rates.demand >= kSaturated * now_.workers;
  }
  static int rounded_up(double workers) {
    return static_cast<int>(std::ceil(std::clamp(workers, 1.0, 1e6)));
  }

  std::size_t base(int workers) const {
    return limits_.for_each_worker * static_cast<std::size_t>(workers) + limits_.beside + kept_;
  }
  /// One batch is ready while the workers fill theirs.
  std::size_t least(int workers) const {
    return limits_.for_each_worker * static_cast<std::size_t>(workers) +
           (limits_.for_each_worker == 0 ? 2 : 1) + kept_;
  }
  std::size_t depth(int workers, std::ptrdiff_t extra) const {
    const std::ptrdiff_t wanted = static_cast<std::ptrdiff_t>(base(workers)) + extra;
    const auto fewest = static_cast<std::ptrdiff_t>(least(workers));
    return std::min(limits_.most.depth, static_cast<std::size_t>(std::max(wanted, fewest)));
  }

  // ---- Windows

  /// Batches that are filled at a time.
  std::uint64_t round(int workers) const {
    return limits_.for_each_worker == 0 ? 1 : static_cast<std::uint64_t>(workers);
  }

  void open(const TuneCounts& counts) {
    begin_ = counts;
    begun_at_ = counts.consuming + counts.waiting;
    to_skip_ = takes_ = 0;
    takes_wanted_ = kWindow;
  }
  /// True: this window goes on, once.
  bool looks_twice() {
    if (takes_wanted_ > kWindow) return false;
    takes_wanted_ = takes_ + kWindow;
    return true;
  }
  /// The next batches are not measured.
  void skip(std::uint64_t takes) {
    to_skip_ = takes;
    takes_ = 0;
  }
  void start_afresh() {
    calm_ = 0;
    most_demand_ = 0;
    turns_ = {};
    windows_ = demand_windows_ = 0;
    longest_wait_ = {};
    least_ready_ = kMany;
  }

  Rates rates(const TuneCounts& now) {
    const auto since = [](auto later, auto earlier) {
      return static_cast<double>(std::max((later - earlier).count(), std::int64_t{0}));
    };
    const double batches =
        static_cast<double>(std::max<std::uint64_t>(1, now.delivered - begin_.delivered));
    const double consuming = since(now.consuming, begin_.consuming);
    const double waiting = since(now.waiting, begin_.waiting);
    if (now.filled > begin_.filled) {
      const auto filled = static_cast<double>(now.filled - begin_.filled);
      source_ = since(now.filling, begin_.filling) / filled;
      cpu_ = since(now.cpu, begin_.cpu) / filled;
    }
    Rates rates{.batch = now.delivered,
                .period = std::max(1.0, (consuming + waiting) / batches),
                .consumer = consuming / batches,
                .source = source_,
                .cpu = cpu_};
    if (now.consumed_on_device > begin_.consumed_on_device)
      rates.consumer =
          std::max(rates.consumer,
                   since(now.consuming_on_device, begin_.consuming_on_device) /
                       static_cast<double>(now.consumed_on_device - begin_.consumed_on_device));
    rates.demand = source_ / rates.period;
    rates.starved = ratio(waiting, consuming + waiting);
    rates.idle = ratio(since(now.workers_waiting, begin_.workers_waiting),
                       (consuming + waiting) * now_.workers);
    const double idle = since(now.device_idle, begin_.device_idle);
    const double busy = since(now.device_busy, begin_.device_busy);
    // With time to spare in the source, the consumer's thread waits for the device, not for data.
    if (idle + busy > 0 && !is_saturated(rates))
      rates.starved = std::min(rates.starved, idle / (idle + busy));
    return rates;
  }

  // ---- Rules

  void decide(const Rates& rates, TuneChanges& changes) {
    for (Patience* patience : {&up_, &fewer_, &deeper_}) patience->pass();
    ++since_spare_;
    ++since_unused_;
    if (rates.source <= 0) return;  // No batch was filled yet.
    if (lone_source_ <= 0 || rates.source < lone_source_) lone_source_ = rates.source;
    if (rates.source < kSlower * lone_source_)
      lone_workers_ = std::max(lone_workers_, now_.workers);
    if (trial_.what != Trial::none && !passed(rates, changes)) return;
    ++windows_;
    ++demand_windows_;
    most_demand_ = std::max(most_demand_, rates.demand);
    turns_.waited += rates.starved;
    turns_.idle += rates.idle;
    turns_.took += rates.period;
    if (rates.starved <= kStarved) {
      jumps(rates);
      return go_down(rates, changes);
    }
    calm_ = 0;
    least_ready_ = kMany;
    if (is_saturated(rates)) return more_workers(rates, changes);
    if (!more_depth(rates, changes)) fewer_workers(rates, changes);
  }

  /// False: it is not over yet, or it was taken back.
  bool passed(const Rates& rates, TuneChanges& changes) {
    const OnTrial trial = trial_;
    switch (trial.what) {
      case Trial::workers: {
        const double hoped = trial.period - trial.predicted, gained = trial.period - rates.period;
        // Workers that wait for memory wait for depth, which is the next to be tried.
        const bool waits = rates.starved > kStarved && is_saturated(rates);
        if (gained < 0.7 * hoped && waits && looks_twice()) return false;
        if (gained < 0.4 * hoped && waits) {
          up_.begin();
          gained_nothing_from_ = trial.before.workers;
          return try_fewer(rates, trial, changes) ? false : take_back(rates, changes);
        }
        // A batch takes no longer than before the step: the source was slower, not the machine
        // fuller.
        if (rates.source < kSlower * trial.source)
          lone_source_ = std::min(trial.source, rates.source);
        gained_nothing_from_ = 0;
        break;
      }
      case Trial::workers_for_slower_source:
        if (slows_with_workers(rates)) {
          up_.begin();
          return try_fewer(rates, trial, changes) ? false : take_back(rates, changes);
        }
        lone_source_ = rates.source;
        lone_workers_ = now_.workers;
        break;
      case Trial::fewer_workers:
        if (rates.period > trial.period && looks_twice()) return false;
        if (rates.period > 1.08 * trial.period) {
          fewer_.begin();
          gained_nothing_from_ = trial.before.workers;
          // The next time, half of the way.
          lone_source_ = 0.5 * (now_.workers + trial.before.workers) * trial.period;
          return take_back(rates, changes);
        }
        up_.begin();
        gained_nothing_from_ = now_.workers;
        break;
      case Trial::depth:
        if (goes_on_trying_depth(rates)) return false;
        if (depth_gained_nothing()) {
          deeper_.begin();
          return take_back(rates, changes);
        }
        break;
      case Trial::none:
        break;
    }
    trial_ = {};
    return true;
  }

  /// Rare long waits are not in every window: two of them are judged together.
  bool goes_on_trying_depth(const Rates& rates) {
    trial_.waited += rates.starved;
    trial_.took += rates.period;
    return ++trial_.windows < 2;
  }
  bool depth_gained_nothing() const {
    const double starved = trial_.waited / trial_.windows, period = trial_.took / trial_.windows;
    return starved > kStarved && starved > 0.75 * trial_.starved && period > 0.9 * trial_.period;
  }

  /// With so many more workers, a batch takes longer by nearly as much: they share something.
  bool slows_with_workers(const Rates& rates) const {
    const double more = static_cast<double>(now_.workers) / trial_.before.workers;
    return more >= 2 && rates.source >= (1 + 0.6 * (more - 1)) * trial_.source;
  }

  void more_workers(const Rates& rates, TuneChanges& changes) {
    const bool jumped = jumps(rates);
    // They are more than at the time when a batch took less: they share something.
    if (!jumped && now_.workers > lone_workers_ &&
        try_fewer(rates, {.before = now_, .extra = extra_}, changes))
      return;
    // The time that the slowest of the others takes for a batch; a step is fourfold at most.
    const double others =
        std::max({rates.consumer, rates.cpu / limits_.cores, rates.source / (4.0 * now_.workers)});
    const int wanted = std::max(now_.workers + 1, rounded_up(rates.source / (kTarget * others)));
    int workers = std::min({wanted, limits_.most.workers, cores_allow(rates)});
    const bool regrets = since_spare_ < 4 * spare_.needed + 4;  // the last step down
    if (since_spare_ < 2 * spare_.needed + 2 && rates.source < kSlower * lone_source_)
      workers = std::min(workers, std::max(now_.workers + 1, before_spare_));
    if (!jumped && now_.workers == gained_nothing_from_)
      workers = std::min(workers, now_.workers + std::max(1, now_.workers / 4));
    if (workers > now_.workers && up_.left == 0) {
      if (regrets) spare_.lengthen();
      // The rate of a window in the middle of a change compares with nothing.
      trial_ = {.what = jumped ? Trial::workers_for_slower_source : Trial::workers,
                .before = now_,
                .extra = extra_,
                .period = rates.period,
                .predicted = std::max(others, rates.source / workers),
                .source = rates.source};
      return set(workers, extra_, TuneReason::source_bound, rates, changes);
    }
    if (!jumped) try_fewer(rates, {.before = now_, .extra = extra_}, changes);
  }

  /// The source has become slower, with as many workers.
  bool jumps(const Rates& rates) {
    const double before = std::exchange(last_source_, rates.source);
    return std::exchange(last_workers_, now_.workers) == now_.workers &&
           before < rates.source / kSlower;
  }

  /// Where each batch takes longer than it did, and no more workers can be had or they gave
  /// nothing: fewer than `before` had. False: no.
  bool try_fewer(const Rates& rates, const OnTrial& before, TuneChanges& changes) {
    const int fewer = std::max(1, static_cast<int>(std::lround(lone_source_ / rates.period)));
    if (rates.source < kSlower * lone_source_ || fewer >= before.before.workers || fewer_.left > 0)
      return false;
    trial_ = {.what = Trial::fewer_workers,
              .before = before.before,
              .extra = before.extra,
              .period = rates.period};
    set(fewer, before.extra, TuneReason::contended, rates, changes);
    return true;
  }

  /// Workers with which the cores are busy: of a worker's time in the source, the CPU's part.
  int cores_allow(const Rates& rates) const {
    if (rates.cpu <= 0) return limits_.most.workers;
    const double workers = limits_.cores * rates.source / rates.cpu;
    return std::max(now_.workers, static_cast<int>(std::min(workers + 0.1, 1e6)));
  }

  bool more_depth(const Rates& rates, TuneChanges& changes) {
    const double windows = windows_;
    if (windows_ < 2 || deeper_.left > 0 || now_.depth >= limits_.most.depth) return false;
    if (turns_.waited <= kStarved * windows || turns_.idle <= kHardlyIdle * windows) return false;
    const double pace = std::max(rates.consumer, rates.source / now_.workers);
    const double missing = std::ceil(ratio(static_cast<double>(longest_wait_.count()), pace));
    const auto more = static_cast<std::ptrdiff_t>(std::clamp(missing, 1.0, 1e6));
    if (since_unused_ < 2 * unused_.needed + 8) unused_.lengthen();
    trial_ = {.what = Trial::depth,
              .before = now_,
              .extra = extra_,
              .period = turns_.took / windows,
              .starved = turns_.waited / windows};
    set(now_.workers, difference(now_.depth, base(now_.workers)) + more, TuneReason::in_turns,
        rates, changes);
    return true;
  }

  /// In a window in which the consumer did not wait.
  void go_down(const Rates& rates, TuneChanges& changes) {
    ++calm_;
    if (fewer_workers(rates, changes)) return;
    if (calm_ < unused_.needed) return;
    const std::size_t ready = std::exchange(least_ready_, kMany);
    calm_ = 0;
    if (ready == kMany || ready < 2) return;
    const auto less = static_cast<std::ptrdiff_t>(ready - 1);
    const std::ptrdiff_t extra = difference(now_.depth, base(now_.workers)) - less;
    if (depth(now_.workers, extra) >= now_.depth) return;
    since_unused_ = 0;
    set(now_.workers, extra, TuneReason::unused, rates, changes);
  }

  /// If so many were not busy in any window for some time.
  bool fewer_workers(const Rates& rates, TuneChanges& changes) {
    if (demand_windows_ < spare_.needed) return false;
    const int enough = rounded_up(most_demand_ / kTarget);
    most_demand_ = 0;
    demand_windows_ = 0;
    if (enough >= now_.workers) return false;
    since_spare_ = 0;
    before_spare_ = now_.workers;
    set(enough, extra_, TuneReason::spare_workers, rates, changes);
    return true;
  }

  // ---- Changes

  bool take_back(const Rates& rates, TuneChanges& changes) {
    const OnTrial trial = trial_;
    trial_ = {};
    set(trial.before.workers, trial.extra, TuneReason::no_gain, rates, changes);
    return false;
  }

  void set(int workers, std::ptrdiff_t extra, TuneReason reason, const Rates& rates,
           TuneChanges& changes) {
    const TuneSettings before = now_;
    extra_ = extra;
    now_ = {workers, depth(workers, extra)};
    const bool steps_workers = workers != before.workers;
    if (steps_workers)
      note(TuneKnob::workers, reason, static_cast<std::size_t>(before.workers),
           static_cast<std::size_t>(workers), rates, changes);
    if (now_.depth != before.depth)
      note(limits_.depth_is, steps_workers ? TuneReason::follows_workers : reason, before.depth,
           now_.depth, rates, changes);
    // The next batches were made before the change, or are the first round after it.
    skip(round(std::max(before.workers, workers)));
  }
  static void note(TuneKnob knob, TuneReason reason, std::size_t from, std::size_t to,
                   const Rates& rates, TuneChanges& changes) {
    const auto time = [](double value) {
      return std::chrono::nanoseconds(static_cast<std::int64_t>(value));
    };
    changes.made[changes.count++] = {
        rates.batch,       knob, reason, from, to, time(rates.source), time(rates.consumer),
        time(rates.period)};
  }

  static constexpr std::size_t kMany = ~std::size_t{0};

  const TuneLimits limits_;
  TuneSettings now_;
  std::size_t kept_ = 0;      // batches whose memory does not come back
  std::ptrdiff_t extra_ = 0;  // depth beyond base()

  // The window
  TuneCounts begin_;
  std::chrono::nanoseconds begun_at_{0}, waiting_{0};
  std::uint64_t takes_ = 0, takes_wanted_ = kWindow, to_skip_ = 1;
  double source_ = 0, cpu_ = 0;  // the last that were measured
  double last_source_ = 0;       // time of a batch in the window before
  int last_workers_ = 0;         // workers in that window

  // Since the last change
  int calm_ = 0;  // windows in a row without a wait; least_ready_ is of these
  double most_demand_ = 0;
  struct Turns {
    double waited = 0, idle = 0, took = 0;
  } turns_;  // sums over windows
  int windows_ = 0, demand_windows_ = 0;
  std::chrono::nanoseconds longest_wait_{0};
  std::size_t least_ready_ = kMany;

  OnTrial trial_;
  double lone_source_ = 0;       // time of a batch while workers do not slow each other down
  int lone_workers_ = 0;         // the most workers for which that held
  int gained_nothing_from_ = 0;  // workers from which the last step up gained nothing; 0: it gained
  Patience up_{6}, fewer_{2}, deeper_{8};  // after a step that was taken back
  Patience spare_{3}, unused_{4};          // before a step down
  int before_spare_ = 0;
  int since_spare_ = kMostPatience * 4, since_unused_ = kMostPatience * 4;
};

}  // namespace penstock::detail
