// SPDX-License-Identifier: Apache-2.0
#pragma once

// TuneCounts: what a Tuner is told. TuneSums: the same of some batches, as rates. TakeTimes: when
// the last batches were taken.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace penstock::detail {

/// Sums since the construction.
struct TuneCounts {
  using Nanoseconds = std::chrono::nanoseconds;
  std::uint64_t delivered = 0;           ///< batches
  Nanoseconds consuming{0}, waiting{0};  ///< of the consumer's thread
  std::uint64_t timed = 0;               ///< batches whose time is in timed_consuming
  Nanoseconds timed_consuming{0};        ///< the consumer's own work, on its thread or its stream
  std::uint64_t filled = 0;              ///< batches
  Nanoseconds filling{0};                ///< of all workers, for the batches in `filled`
  Nanoseconds workers_waiting{0};        ///< of those that run, for memory
  Nanoseconds cpu{0};                    ///< of all workers
  Nanoseconds device_busy{0}, device_idle{0};  ///< of the copy stream, by samples; 0: not known
};

/// Of some batches, in ns. Those that are further back may count less.
class TuneSums {
 public:
  TuneSums() = default;
  /// From `before` to `now`.
  TuneSums(const TuneCounts& before, const TuneCounts& now)
      : delivered_(since(now.delivered, before.delivered)),
        consuming_(since(now.consuming, before.consuming)),
        waiting_(since(now.waiting, before.waiting)),
        timed_(since(now.timed, before.timed)),
        timed_consuming_(since(now.timed_consuming, before.timed_consuming)),
        filled_(since(now.filled, before.filled)),
        filling_(since(now.filling, before.filling)),
        workers_waiting_(since(now.workers_waiting, before.workers_waiting)),
        cpu_(since(now.cpu, before.cpu)),
        device_busy_(since(now.device_busy, before.device_busy)),
        device_idle_(since(now.device_idle, before.device_idle)) {}

  /// Adds the batches after these, which count by the factor `kept` from now on.
  void add(const TuneSums& next, double kept) {
    for (const auto sum : kAll) this->*sum = kept * (this->*sum) + next.*sum;
  }

  bool knows_source() const { return filled_ > 0; }
  /// A worker's time for a batch, and the CPU's part of it.
  double source() const { return ratio(filling_, filled_); }
  double cpu() const { return ratio(cpu_, filled_); }
  /// From one batch to the next.
  double period() const { return std::max(1.0, ratio(consuming_ + waiting_, delivered_)); }
  /// The consumer's own time for a batch.
  double consumer() const {
    return std::min(period(),
                    timed_ > 0 ? timed_consuming_ / timed_ : ratio(consuming_, delivered_));
  }
  /// Workers that were busy, on average.
  double demand() const { return source() / period(); }
  /// The part of their time that `workers` waited for memory.
  double idle(int workers) const {
    return ratio(workers_waiting_, (consuming_ + waiting_) * workers);
  }
  /// The part of the time that the copy stream had nothing to copy.
  double device_idle() const {
    return device_busy_ + device_idle_ > 0 ? device_idle_ / (device_busy_ + device_idle_) : 1;
  }
  /// The part of its time that the consumer had no work.
  double starved() const { return 1 - consumer() / period(); }

 private:
  template <class T>
  static double since(T now, T before) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<double>(now - before);
    else
      return static_cast<double>(std::max((now - before).count(), std::int64_t{0}));
  }
  static double ratio(double part, double whole) { return whole <= 0 ? 0 : part / whole; }

  double delivered_ = 0, consuming_ = 0, waiting_ = 0, timed_ = 0, timed_consuming_ = 0;
  double filled_ = 0, filling_ = 0, workers_waiting_ = 0, cpu_ = 0;
  double device_busy_ = 0, device_idle_ = 0;

  static const std::array<double TuneSums::*, 11> kAll;
};

inline constexpr std::array<double TuneSums::*, 11> TuneSums::kAll{
    &TuneSums::delivered_,   &TuneSums::consuming_,       &TuneSums::waiting_,
    &TuneSums::timed_,       &TuneSums::timed_consuming_, &TuneSums::filled_,
    &TuneSums::filling_,     &TuneSums::workers_waiting_, &TuneSums::cpu_,
    &TuneSums::device_busy_, &TuneSums::device_idle_};

/// The time from each of the last batches to the next one.
class TakeTimes {
 public:
  void add(std::chrono::nanoseconds time) {
    times_[count_++ % times_.size()] = static_cast<double>(time.count());
  }
  void clear() { count_ = 0; }

  /// Batches that have to be ready so that the consumer can take the next ones as it took these,
  /// while `workers` fill one in `source` ns each: it may be faster than they are for a while.
  double batches_ahead(int workers, double source) const {
    double behind = 0, most = 0;
    for (std::size_t i = count_ - std::min(count_, times_.size()); i < count_; ++i) {
      behind = std::max(0.0, behind + 1 - workers * times_[i % times_.size()] / source);
      most = std::max(most, behind);
    }
    return most;
  }

 private:
  std::array<double, 64> times_{};
  std::size_t count_ = 0;
};

}  // namespace penstock::detail
