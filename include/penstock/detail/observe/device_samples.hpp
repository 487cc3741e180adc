// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceSamples: measures the times of batches on the device by timed events: the time of the copy,
// of the transform or of the work of an on_device source, the time in which the consumer's stream
// has no work because it waits for a batch, and the time in which it works. With device_times every
// batch is measured, otherwise a sample of them. No function here blocks, and only `collect` asks
// CUDA for times.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/consumer_streams.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/timeline.hpp>
#include <penstock/stats.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The sums of the measured times, in the form of the members of Stats. If n streams take batches
/// in turn, 1/n of each stream's waits and work is counted.
struct DeviceSums {
  /// Each measured batch also counts for the batches before it that were not measured.
  StageStats copy, transform;
  DeviceTimes times;   ///< without `copies`; the two parts of a wait are set only with device_times
  SampledWaits waits;  ///< set with and without device_times
};

/// Batches are sampled in bursts, so that the intervals between them are known too. A burst lasts
/// as long as the budget allows; the next one begins when the budget is full again.
class DeviceSamples {
 public:
  enum class Kind { copies, transforms, on_device };

  /// The events of one batch. It may be used again when `uses_` is 0.
  struct Sample {
    cudaStream_t stream_ = nullptr;
    std::uint64_t order_ = 0;
    std::atomic<int> uses_{0};
    std::atomic<bool> is_handed_in_{false};  // True: only the reader may use the other members.
  };
  /// The events around the copy of a batch, or around the work of its source.
  struct CopySample : Sample {
    explicit CopySample(Kind kind) {
      if (kind != Kind::on_device) wanted_.emplace(cudaEventDefault);
      if (kind == Kind::transforms) arrived_.emplace(cudaEventDefault);
    }
    std::optional<Event> wanted_;  // recorded before the wait for a slot
    Event begun_{cudaEventDefault}, ended_{cudaEventDefault};
    std::optional<Event> arrived_;  // between the copy and the transform
    Ticks staged_ = 0;
  };
  struct Drop {
    void operator()(CopySample* sample) const noexcept { end_use(*sample); }
  };
  /// Null if the batch is not measured. A batch whose Copy is destroyed before `hand_in` is not
  /// measured.
  using Copy = std::unique_ptr<CopySample, Drop>;

  /// The events belong to the current device. At most `batches` batches of the pipeline are under
  /// way at a time. `every`: measure each batch, as device_times asks.
  DeviceSamples(Timeline& timeline, Kind kind, std::size_t batches, bool every)
      : timeline_(timeline), kind_(kind), every_(every) {
    // If an on_device source and the loop only queue work, the device is far behind the host.
    const std::size_t sets = every ? std::max(2 * batches + 8, kFarBehind) : kBurst;
    for (std::size_t i = 0; i < sets; ++i) copies_.emplace_back(kind);
    for (std::size_t i = 0; i < sets + recent_.size(); ++i) takes_.emplace_back(every);
    choose_takes(0, true, ticks());
  }
  DeviceSamples(const DeviceSamples&) = delete;
  DeviceSamples& operator=(const DeviceSamples&) = delete;

  // ---- Called by the thread that copies; on_device: by the workers. They throw CudaError; then
  // the batch is not measured.

  /// Call it once for each batch, before `stream`, on which the batch is copied or written, waits
  /// for a slot. Returns null if the batch is not measured.
  Copy want(cudaStream_t stream, Ticks now) {
    if (!every_ && !copy_budget_.take_in_bursts(now)) return {};
    Copy copy(find_free(copies_, next_copy_));
    if (copy == nullptr) return copy;
    copy->stream_ = stream;
    if (copy->wanted_) copy->wanted_->record(stream);
    return copy;
  }
  /// Call it after the wait for the slot was queued, before the copy or the source's work.
  void begin(Copy& copy) const {
    if (copy != nullptr) copy->begun_.record(copy->stream_);
  }
  /// Call it immediately after the copy was queued.
  void arrive(Copy& copy) const {
    if (copy != nullptr) (copy->arrived_ ? *copy->arrived_ : copy->ended_).record(copy->stream_);
  }
  /// Call it after the transform, or the work of an on_device source, was queued.
  void end(Copy& copy) const {
    if (copy != nullptr && kind_ != Kind::copies) copy->ended_.record(copy->stream_);
  }

  // ---- Called by the thread that stages

  /// Call it for each batch that is staged, with its order (see Timeline) and its stamp.
  void hand_in(Copy copy, std::uint64_t order, Ticks staged) noexcept {
    if (!every_) choose_takes(order, copy != nullptr, staged);
    if (copy == nullptr) return;
    CopySample* const sample = copy.release();
    sample->order_ = order;
    sample->staged_ = staged;
    sample->is_handed_in_.store(true, std::memory_order_release);
  }

  // ---- Called by the thread that takes a batch, in this order. They throw CudaError; then the
  // batch is not measured.

  /// Call it before the search for a batch. `order`: the order of the batch if none fails.
  void ask(cudaStream_t consumer, std::uint64_t order) {
    is_asked_ = false;
    if (!every_ && (order < first_take_.load(std::memory_order_relaxed) ||
                    order >= end_of_takes_.load(std::memory_order_relaxed)))
      return;
    if (pending_ == nullptr) pending_ = find_free(takes_, next_take_);
    if (pending_ == nullptr) return;
    pending_->turns_ = streams_.turns(consumer);
    pending_->asked_.record(consumer);
    is_asked_ = true;
  }
  /// Call it when a batch is found, before the stream's wait for it is queued.
  void find(cudaStream_t consumer) {
    if (is_asked_ && pending_->found_) pending_->found_->record(consumer);
  }
  /// Call it after the stream's wait for the batch was queued. Returns the stream's number (see
  /// ConsumerStreams).
  int take(cudaStream_t consumer, std::uint64_t order) {
    TakeSample* sample = nullptr;
    if (std::exchange(is_asked_, false)) {
      pending_->ready_.record(consumer);
      sample = std::exchange(pending_, nullptr);
      sample->stream_ = consumer;
      sample->order_ = order;
      sample->before_ = sample->turns_ == 0 ? nullptr : recent_[sample->turns_ - 1];
      if (sample->before_ != nullptr)
        sample->before_->uses_.fetch_add(1, std::memory_order_relaxed);
      sample->uses_.store(2, std::memory_order_relaxed);  // One use is by the reader, the other by
                                                          // recent_.
      sample->is_handed_in_.store(true, std::memory_order_release);
    }
    if (recent_.back() != nullptr) end_use(*recent_.back());
    std::move_backward(recent_.begin(), recent_.end() - 1, recent_.end());
    recent_.front() = sample;
    return streams_.note(consumer);
  }

  // ---- Called by any thread

  /// Adds the times of the events that the device has reached to the timeline and to the sums. Does
  /// nothing while another thread runs it, or while CUDA holds an error that the user has not read
  /// yet, since a query would replace that error. It is allowed during stream captures.
  void collect() noexcept {
    if (cudaPeekAtLastError() != cudaSuccess) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    const CaptureModeGuard guard;
    collect_from(copies_, next_copy_, guard);
    collect_from(takes_, next_take_, guard);
  }
  /// Calls collect(), at most once in kPeriod.
  void collect_now_and_then(Ticks now) noexcept {
    if (now - collected_at_.load(std::memory_order_relaxed) < kPeriod) return;
    collected_at_.store(now, std::memory_order_relaxed);
    collect();
  }

  DeviceSums sums() const {
    const std::lock_guard lock(mutex_);
    return sums_;
  }

 private:
  using nanoseconds = std::chrono::nanoseconds;

  static constexpr std::size_t kBurst = 16;  // batches in a row
  static constexpr std::size_t kFarBehind = 64;
  // On average at most one batch in this many nanoseconds is measured, so that batches of a few
  // microseconds are not slowed down. Batches that take longer are all measured.
  static constexpr Ticks kPeriod = 100'000, kTakePeriod = 1'000'000;

  /// A budget of one batch in each `period`, which accumulates up to kBurst batches.
  class Budget {
   public:
    explicit Budget(Ticks period) : period_(period) {}

    bool is_full(Ticks now) const { return now - spent_.load(std::memory_order_relaxed) >= most(); }
    /// Takes one batch from the budget. Returns false if the budget is empty.
    bool take(Ticks now) {
      Ticks spent = spent_.load(std::memory_order_relaxed);
      const Ticks then = std::max(spent, now - most()) + period_;
      return then <= now && spent_.compare_exchange_strong(spent, then, std::memory_order_relaxed);
    }
    /// Like take(), but after the budget was empty it must be full before the next batch is taken.
    bool take_in_bursts(Ticks now) {
      const bool may = in_burst_.load(std::memory_order_relaxed) || is_full(now);
      const bool taken = may && take(now);
      if (taken != in_burst_.load(std::memory_order_relaxed))
        in_burst_.store(taken, std::memory_order_relaxed);
      return taken;
    }

   private:
    Ticks most() const { return static_cast<Ticks>(kBurst) * period_; }

    const Ticks period_;
    std::atomic<Ticks> spent_{0};  // the budget is used up to this time
    std::atomic<bool> in_burst_{false};
  };

  /// The events around a call of next().
  struct TakeSample : Sample {
    explicit TakeSample(bool every) {
      if (every) found_.emplace(cudaEventDefault);
    }
    Event asked_{cudaEventDefault}, ready_{cudaEventDefault};
    std::optional<Event> found_;  // between the two: a batch was found, whose copy is queued
    std::uint64_t turns_ = 0;
    TakeSample* before_ = nullptr;  // the sample of the batch that the stream took before
  };

  /// Chooses which takes are measured. A burst begins where a copy is measured, and goes on as long
  /// as the budget allows.
  void choose_takes(std::uint64_t order, bool is_sampled, Ticks now) noexcept {
    std::uint64_t end = end_of_takes_.load(std::memory_order_relaxed);
    if (end <= order) {
      if (!is_sampled || !take_budget_.is_full(now)) return;
      first_take_.store(end = order, std::memory_order_relaxed);
    }
    while (end < order + kBurst && take_budget_.take(now)) ++end;
    end_of_takes_.store(end, std::memory_order_relaxed);
  }

  /// Returns a free sample, or null if all are in use. The acquire orders the new use after the
  /// reads of the previous use.
  template <class S>
  S* find_free(std::deque<S>& samples, std::atomic<std::size_t>& next) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (attempt > 0) collect();
      const std::size_t first = next.load(std::memory_order_relaxed);
      for (std::size_t i = first; i < first + samples.size(); ++i) {
        S& sample = samples[i % samples.size()];
        int none = 0;
        if (sample.uses_.load(std::memory_order_relaxed) != 0 ||
            !sample.uses_.compare_exchange_strong(none, 1, std::memory_order_acquire))
          continue;
        next.store(i + 1, std::memory_order_relaxed);
        return &sample;
      }
    }
    return nullptr;
  }
  /// Ends a use of the sample. The release orders the reads of this use before the next use.
  static void end_use(Sample& sample) noexcept {
    sample.uses_.fetch_sub(1, std::memory_order_release);
  }

  /// Adds the samples that the device has reached. After one that is not reached, the next samples
  /// of the same stream are not tried.
  template <class S>
  void collect_from(std::deque<S>& samples, const std::atomic<std::size_t>& next,
                    const CaptureModeGuard& guard) noexcept {
    const std::size_t first = next.load(std::memory_order_relaxed);
    std::optional<cudaStream_t> unreached;
    for (std::size_t i = first; i < first + samples.size(); ++i) {
      S& sample = samples[i % samples.size()];
      if (!sample.is_handed_in_.load(std::memory_order_acquire) || sample.stream_ == unreached)
        continue;
      if (add(sample, guard)) {
        sample.is_handed_in_.store(false, std::memory_order_relaxed);
        end_use(sample);
      } else {
        unreached = sample.stream_;
      }
    }
  }

  /// Returns the time between two events, or nullopt while one of them is not reached. Clears the
  /// error that CUDA reports then.
  static std::optional<Ticks> elapsed(const Event& from, const Event& to,
                                      const CaptureModeGuard&) noexcept {
    float milliseconds = 0;
    if (cudaEventElapsedTime(&milliseconds, from.get(), to.get()) != cudaSuccess) {
      cudaGetLastError();
      return std::nullopt;
    }
    return std::max<Ticks>(0, static_cast<Ticks>(1e6 * double{milliseconds}));
  }

  bool add(CopySample& copy, const CaptureModeGuard& guard) noexcept {
    const auto all = elapsed(copy.begun_, copy.ended_, guard);
    if (!all) return false;
    DeviceDurations durations;
    StageStats &copies = sums_.copy, &transforms = sums_.transform;
    if (kind_ == Kind::on_device) {
      // Workers end their batches in any order, so each measured batch counts only for itself.
      durations.source = *all;
      ++copies.timed;
    } else {
      durations.copy =
          copy.arrived_ ? elapsed(copy.begun_, *copy.arrived_, guard).value_or(*all) : *all;
      if (copy.arrived_) durations.transform = *all - durations.copy;
      durations.slot = elapsed(*copy.wanted_, copy.begun_, guard).value_or(0);
      const std::uint64_t passed = std::max(copies.timed, copy.order_ + 1);
      const auto stands_for = static_cast<Ticks>(passed - copies.timed);
      copies.timed = transforms.timed = passed;
      copies.busy += nanoseconds(stands_for * durations.copy);
      transforms.busy += nanoseconds(stands_for * std::max<Ticks>(0, durations.transform));
      copies.waiting_for_room += nanoseconds(stands_for * durations.slot);
      if (first_staged_ == 0) first_staged_ = copy.staged_;
      const nanoseconds copying = copies.busy + copies.waiting_for_room;
      copies.waiting_for_input =
          std::max(copies.waiting_for_input,
                   nanoseconds(copy.staged_ - first_staged_) - copying - transforms.busy);
      transforms.waiting_for_input = copies.waiting_for_input + copying;
    }
    timeline_.measure(copy.order_, durations);
    return true;
  }

  bool add(TakeSample& take, const CaptureModeGuard& guard) noexcept {
    const auto wait = elapsed(take.asked_, take.ready_, guard);
    if (!wait) return false;
    timeline_.measure(take.order_, {.wait = *wait});
    // The first batch is left out, since the pipeline is still empty then. The others count for one
    // of `turns` streams.
    const auto turns = static_cast<Ticks>(take.turns_);
    if (turns > 0) {
      ++sums_.waits.batches;
      sums_.waits.waiting += nanoseconds(*wait / turns);
      sums_.waits.longest = std::max(sums_.waits.longest, nanoseconds(*wait / turns));
    }
    if (take.before_ != nullptr) {
      DeviceTimes& times = sums_.times;
      const Ticks step = elapsed(take.before_->ready_, take.asked_, guard).value_or(0);
      if (take.before_->stream_ == take.stream_)
        timeline_.measure(take.before_->order_, {.step = step});
      ++times.batches;
      times.consuming += nanoseconds(step / turns);
      if (take.found_) {
        const Ticks until_staged = elapsed(take.asked_, *take.found_, guard).value_or(0);
        const Ticks until_there = elapsed(*take.found_, take.ready_, guard).value_or(0);
        times.awaiting_batch += nanoseconds(until_staged / turns);
        times.awaiting_copy += nanoseconds(until_there / turns);
        times.longest_wait = std::max(times.longest_wait, nanoseconds(until_staged + until_there));
      }
      end_use(*std::exchange(take.before_, nullptr));
    }
    return true;
  }

  Timeline& timeline_;
  const Kind kind_;
  const bool every_;
  std::deque<CopySample> copies_;
  std::deque<TakeSample> takes_;
  std::atomic<std::size_t> next_copy_{0}, next_take_{0};  // hints for the search of a free sample
  Budget copy_budget_{kPeriod};

  // The thread that stages writes these. The thread that takes reads them and may see older values.
  Budget take_budget_{kTakePeriod};
  std::atomic<std::uint64_t> first_take_{0}, end_of_takes_{0};  // the range of takes that are
                                                                // measured

  // Only the thread that takes a batch uses these.
  ConsumerStreams streams_;
  TakeSample* pending_ = nullptr;                              // the sample for the next batch
  bool is_asked_ = false;                                      // its event `asked_` is recorded
  std::array<TakeSample*, ConsumerStreams::kTurns> recent_{};  // the samples of the last batches,
                                                               // the latest first

  std::atomic<Ticks> collected_at_{0};
  mutable std::mutex mutex_;  // protects the reader's role and the members below
  Ticks first_staged_ = 0;    // of the measured batches
  DeviceSums sums_;
};

}  // namespace penstock::detail
