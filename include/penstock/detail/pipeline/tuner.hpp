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
#include <penstock/detail/observe/tune_sums.hpp>
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
    take_times_.add(consuming + waiting - taken_at_);
    taken_at_ = consuming + waiting;
    ++takes_;
    if (to_skip_ > 0) return takes_ >= to_skip_;
    // Workers that began together come back together: whole rounds of them make a steady rate.
    return takes_ >= kWindow && takes_ % round(now_.workers) == 0 &&
           taken_at_ - opened_at_ >= kShortest;
  }
  /// At each take: `count_ready(most)` batches, up to `most`, are there for the next ones.
  template <class CountReady>
  void note_ready(CountReady&& count_ready) {
    least_ready_ = std::min(least_ready_, count_ready(least_ready_));
  }

  TuneChanges look(const TuneCounts& counts) {
    changes_ = {};
    if (to_skip_ > 0) {
      start_afresh();
    } else {
      add_window(TuneSums(opened_, counts));
      batch_ = counts.delivered;
      decide();
    }
    if (changes_.count == 0) open(counts);
    return changes_;
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
  static constexpr double kStarved = 0.03;   // the consumer has no work for more of its time
  static constexpr double kMissed = 0.1;     // the same, after workers were parked
  static constexpr double kIdle = 0.08;      // the workers wait for memory for more of their time
  static constexpr double kTarget = 0.95;    // how busy workers are to be
  static constexpr double kSlower = 1.15;    // a batch takes longer, beyond noise
  static constexpr double kFarSlower = 1.4;  // the same, without any step of the tuner's
  static constexpr double kWorse = 1.08;     // a batch comes later, beyond noise
  static constexpr double kClearlyWorse = 1.3;  // one window is enough to see it
  // What a window counts for when the next one is there: for quick answers, and for those that have
  // time.
  static constexpr double kSoon = 0.6, kSlowly = 0.85;
  static constexpr int kMostPatience = 64;  // windows
  static constexpr std::uint64_t kWindow = 8;
  static constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(10);
  static constexpr std::size_t kMany = ~std::size_t{0};

  enum class Trial { none, more_workers, sharing, fewer_workers, spare_workers };
  struct OnTrial {
    Trial what = Trial::none;
    TuneSettings before{};
    std::ptrdiff_t extra = 0;
    double period = 0, source = 0, predicted = 0;
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
  static std::ptrdiff_t whole(double batches) {
    return static_cast<std::ptrdiff_t>(std::ceil(std::clamp(batches, 0.0, 1e6)));
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
  std::ptrdiff_t present_extra() const { return difference(now_.depth, base(now_.workers)); }

  // ---- Windows

  /// Batches that are filled at a time.
  std::uint64_t round(int workers) const {
    return limits_.for_each_worker == 0 ? 1 : static_cast<std::uint64_t>(workers);
  }
  void open(const TuneCounts& counts) {
    opened_ = counts;
    opened_at_ = counts.consuming + counts.waiting;
    to_skip_ = takes_ = 0;
  }
  /// The next batches are not measured.
  void skip(std::uint64_t takes) {
    to_skip_ = takes;
    takes_ = 0;
  }
  void start_afresh() {
    windows_ = calm_ = 0;
    recent_ = since_ = {};
    take_times_.clear();
    longest_wait_ = {};
    least_ready_ = kMany;
  }
  void add_window(const TuneSums& window) {
    window_ = window;
    recent_.add(window, kSoon);
    since_.add(window, kSlowly);
    work_.add(window, kSoon);
    ++windows_;
  }

  bool is_saturated(const TuneSums& sums) const { return sums.idle(now_.workers) <= kIdle; }
  /// With time to spare in the source, the consumer may wait for the device, and not for data.
  bool is_starved(const TuneSums& sums) const {
    const double limit = is_saturated(sums) ? 1 : sums.device_idle();
    return std::min(sums.starved(), limit) > kStarved;
  }

  // ---- Rules

  void decide() {
    for (Patience* patience : {&up_, &fewer_}) patience->pass();
    ++since_spare_;
    ++since_unused_;
    if (!work_.knows_source()) return;
    if (lone_source_ <= 0 || work_.source() < lone_source_) lone_source_ = work_.source();
    if (trial_.what != Trial::none && !is_over()) return;
    if (!is_starved(recent_)) return go_down();
    calm_ = 0;
    is_saturated(window_) ? more_workers() : more_depth();
    if (changes_.count == 0) least_ready_ = kMany;
  }

  /// False: the trial goes on, or it has ended with a change.
  bool is_over() {
    switch (trial_.what) {
      case Trial::more_workers:
        return more_workers_are_over();
      case Trial::sharing:
        return sharing_is_over();
      case Trial::fewer_workers:
        return fewer_workers_are_over();
      default:
        return spare_workers_are_over();
    }
  }
  bool end_trial() {
    trial_ = {};
    return true;
  }

  // A step up, after which each batch takes longer: either the workers share something, a disk or
  // the cores, or the source has become slower by itself. So many as are useful if they share are
  // the control: if they do as much, they share.

  bool more_workers_are_over() {
    const double period = since_.period();
    if (!is_starved(since_) || !is_saturated(since_) ||
        since_.source() <= kSlower * trial_.source) {
      lone_source_ = work_.source();
      gained_nothing_from_ = 0;
      return end_trial();
    }
    const double most_of_the_gain = trial_.period - 0.7 * (trial_.period - trial_.predicted);
    if (windows_ < 2 && period > most_of_the_gain) return false;
    gained_nothing_from_ = 0;
    const int useful =
        std::max(trial_.before.workers, static_cast<int>(std::lround(trial_.source / period)));
    if (useful >= now_.workers) return end_trial();
    const std::ptrdiff_t extra = trial_.extra;
    trial_ = {.what = Trial::sharing,
              .before = now_,
              .extra = extra_,
              .period = period,
              .source = since_.source()};
    set(useful, extra, TuneReason::contended);
    return false;
  }

  bool sharing_is_over() {
    const double period = since_.period();
    if (windows_ < 2 && period < kClearlyWorse * trial_.period) return false;
    // Those that share take less time for a batch where they are fewer.
    const double fewer = static_cast<double>(now_.workers) / trial_.before.workers;
    const bool share = since_.source() < 0.5 * (1 + fewer) * trial_.source;
    if (share && period <= kWorse * trial_.period) {
      up_.begin();
      gained_nothing_from_ = now_.workers;
    } else {
      work_ = since_;
      lone_source_ = since_.source();
    }
    return end_trial();
  }

  bool fewer_workers_are_over() {
    const double period = since_.period();
    if (period > trial_.period && windows_ < 2) return false;
    if (period > kWorse * trial_.period) {
      fewer_.begin();
      gained_nothing_from_ = trial_.before.workers;
      // The next time, half of the way.
      lone_source_ = 0.5 * (now_.workers + trial_.before.workers) * trial_.period;
      return take_back();
    }
    up_.begin();
    gained_nothing_from_ = now_.workers;
    return end_trial();
  }

  bool spare_workers_are_over() {
    if (windows_ < 3) return false;  // The batches ahead have to be filled first.
    if (since_.starved() <= kMissed) return end_trial();
    spare_.lengthen();
    return take_back();
  }

  void more_workers() {
    // The time that the slowest of the others takes for a batch; a step is fourfold at most.
    const double others = std::max(
        {work_.consumer(), work_.cpu() / limits_.cores, work_.source() / (4.0 * now_.workers)});
    const int wanted = std::max(now_.workers + 1, rounded_up(work_.source() / (kTarget * others)));
    int workers = std::min({wanted, limits_.most.workers, cores_allow()});
    if (now_.workers == gained_nothing_from_)
      workers = std::min(workers, now_.workers + std::max(1, now_.workers / 4));
    if (workers <= now_.workers || up_.left > 0) return try_fewer();
    if (since_spare_ < 4 * spare_.needed + 4) spare_.lengthen();
    trial_ = {.what = Trial::more_workers,
              .before = now_,
              .extra = extra_,
              .period = recent_.period(),
              .source = window_.source(),
              .predicted = std::max(others, work_.source() / workers)};
    set(workers, extra_, TuneReason::source_bound);
  }

  /// No more workers can be had, or they gave nothing, and each batch takes far longer than it did:
  /// somebody else has a part of what they share.
  void try_fewer() {
    if (windows_ < 2 || fewer_.left > 0 || recent_.source() <= kFarSlower * lone_source_) return;
    const int fewer = rounded_up(lone_source_ / window_.period() - 0.25);
    if (fewer >= now_.workers) return;
    trial_ = {
        .what = Trial::fewer_workers, .before = now_, .extra = extra_, .period = window_.period()};
    set(fewer, extra_, TuneReason::contended);
  }

  /// Workers with which the cores are busy: of a worker's time in the source, the CPU's part.
  int cores_allow() const {
    if (work_.cpu() <= 0) return limits_.most.workers;
    const double workers = limits_.cores * work_.source() / work_.cpu();
    return std::max(now_.workers, static_cast<int>(std::min(workers + 0.1, 1e6)));
  }

  /// Workers wait for memory, and the consumer for batches: the one at one time, the other at
  /// another.
  void more_depth() {
    if (windows_ < 2 || now_.depth >= limits_.most.depth) return;
    if (least_ready_ > 0 || !is_starved(since_)) return;
    const double pace = std::max(work_.consumer(), work_.source() / now_.workers);
    const std::ptrdiff_t missing =
        std::max({whole(static_cast<double>(longest_wait_.count()) / pace),
                  static_cast<std::ptrdiff_t>(now_.depth / 2), std::ptrdiff_t{1}});
    if (since_unused_ < 2 * unused_.needed + 8) unused_.lengthen();
    set(now_.workers, present_extra() + missing, TuneReason::in_turns);
  }

  /// The consumer does not wait.
  void go_down() {
    ++calm_;
    if (fewer_workers() || calm_ < unused_.needed) return;
    const std::size_t ready = std::exchange(least_ready_, kMany);
    calm_ = 0;
    if (ready == kMany || ready < 2) return;
    const auto half = static_cast<std::ptrdiff_t>(ready / 2);
    if (depth(now_.workers, present_extra() - half) >= now_.depth) return;
    since_unused_ = 0;
    set(now_.workers, present_extra() - half, TuneReason::unused);
  }

  /// If so many were not busy on average, with as many batches ahead as make up for that.
  bool fewer_workers() {
    if (windows_ < spare_.needed) return false;
    const int enough = rounded_up(since_.demand() / kTarget);
    if (enough >= now_.workers) return false;
    const std::ptrdiff_t ahead = whole(take_times_.batches_ahead(enough, since_.source()));
    since_spare_ = 0;
    trial_ = {
        .what = Trial::spare_workers, .before = now_, .extra = extra_, .period = since_.period()};
    set(enough, std::max(extra_, ahead), TuneReason::spare_workers);
    return true;
  }

  // ---- Changes

  /// False, as the end of a trial.
  bool take_back() {
    const OnTrial trial = std::exchange(trial_, {});
    set(trial.before.workers, trial.extra, TuneReason::no_gain);
    return false;
  }

  void set(int workers, std::ptrdiff_t extra, TuneReason reason) {
    const TuneSettings before = std::exchange(now_, {workers, depth(workers, extra)});
    extra_ = extra;
    const bool steps_workers = workers != before.workers;
    if (steps_workers)
      note(TuneKnob::workers, reason, static_cast<std::size_t>(before.workers),
           static_cast<std::size_t>(workers));
    if (now_.depth != before.depth) {
      const bool make_up = now_.depth > before.depth && workers < before.workers;
      note(limits_.depth_is,
           make_up         ? TuneReason::replaces_workers
           : steps_workers ? TuneReason::follows_workers
                           : reason,
           before.depth, now_.depth);
    }
    // The next batches were made before the change, or are the first round after it.
    skip(round(std::max(before.workers, workers)));
  }
  void note(TuneKnob knob, TuneReason reason, std::size_t from, std::size_t to) {
    const auto time = [](double value) {
      return std::chrono::nanoseconds(static_cast<std::int64_t>(value));
    };
    changes_.made[changes_.count++] = {.batch = batch_,
                                       .knob = knob,
                                       .reason = reason,
                                       .from = from,
                                       .to = to,
                                       .source = time(work_.source()),
                                       .consumer = time(work_.consumer()),
                                       .period = time(recent_.period())};
  }

  const TuneLimits limits_;
  TuneSettings now_;
  std::size_t kept_ = 0;      // batches whose memory does not come back
  std::ptrdiff_t extra_ = 0;  // depth beyond base()

  // Of this look
  TuneChanges changes_;
  std::uint64_t batch_ = 0;

  // The window
  TuneCounts opened_;
  std::chrono::nanoseconds opened_at_{0}, taken_at_{0}, waiting_{0};
  std::uint64_t takes_ = 0, to_skip_ = 1;
  TuneSums window_;
  TuneSums work_;  // of the last windows, whatever the settings: times of source and consumer

  // Since the last change
  TuneSums recent_, since_;  // the last windows, and more of them
  TakeTimes take_times_;
  int windows_ = 0;
  int calm_ = 0;                     // windows in a row without a wait
  std::size_t least_ready_ = kMany;  // in these windows, or in this one
  std::chrono::nanoseconds longest_wait_{0};

  OnTrial trial_;
  double lone_source_ = 0;       // time of a batch while workers do not slow each other down
  int gained_nothing_from_ = 0;  // workers from which the last step up gained nothing; 0: it gained
  Patience up_{6}, fewer_{2};    // after a step that was taken back
  Patience spare_{4}, unused_{6};  // before a step down
  int since_spare_ = kMostPatience * 4, since_unused_ = kMostPatience * 4;
};

}  // namespace penstock::detail
