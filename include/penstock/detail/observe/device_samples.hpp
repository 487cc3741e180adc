// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceSamples: what batches take on the device, by timed events: how long the copy, the transform
// or the work of an on_device source takes, how long the consumer's stream has no work until a
// batch is there, and how long it works then. With device_times every batch is measured, otherwise
// some of them. Nothing here blocks, and only `collect` asks CUDA for times.

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

namespace penstock::detail {

/// What the batches that were measured took on the device, as far as the members of Stats say so.
/// Where several streams take batches in turn, each stream's waits and work count for a part of
/// them only.
struct DeviceSums {
  /// Each batch that was measured stands for those before it that were not.
  StageStats copy, transform;
  DeviceTimes times;   ///< but for `copies`; the two parts of a wait only with device_times
  SampledWaits waits;  ///< also with device_times
};

/// A sampled batch is measured together with those that follow it, so that it is known how they
/// follow each other: as many in a row as the budget allows, which then has to fill up again.
class DeviceSamples {
 public:
  enum class Kind { copies, transforms, on_device };

  /// Has events of a batch. It may be used again when `uses` is 0.
  struct Sample {
    cudaStream_t stream_ = nullptr;
    std::uint64_t order_ = 0;
    std::atomic<int> uses_{0};
    std::atomic<bool> is_handed_in_{false};  // Then all but `uses` is the reader's.
  };
  /// Events around the copy of a batch, or around the work of its source.
  struct CopySample : Sample {
    explicit CopySample(Kind kind) {
      if (kind != Kind::on_device) wanted_.emplace(cudaEventDefault);
      if (kind == Kind::transforms) arrived_.emplace(cudaEventDefault);
    }
    std::optional<Event> wanted_;  // The batch needs a slot, and the one before is there.
    Event begun_{cudaEventDefault}, ended_{cudaEventDefault};
    std::optional<Event> arrived_;  // between the copy and the transform
    Ticks staged_ = 0;
  };
  struct Drop {
    void operator()(CopySample* sample) const noexcept { end_use(*sample); }
  };
  /// Null for a batch that is not measured. If it is destroyed, the batch is not measured after
  /// all.
  using Copy = std::unique_ptr<CopySample, Drop>;

  /// It belongs to the current device, and to a pipeline in which at most `batches` are under way
  /// at a time. `every` is set with device_times.
  DeviceSamples(Timeline& timeline, Kind kind, std::size_t batches, bool every)
      : timeline_(timeline), kind_(kind), every_(every) {
    // Where an on_device source and the loop only queue work, the device is far behind the host.
    const std::size_t sets = every ? std::max(2 * batches + 8, kFarBehind) : kBurst;
    for (std::size_t i = 0; i < sets; ++i) copies_.emplace_back(kind);
    for (std::size_t i = 0; i < sets + recent_.size(); ++i) takes_.emplace_back(every);
    choose_takes(0, true, ticks());
  }
  DeviceSamples(const DeviceSamples&) = delete;
  DeviceSamples& operator=(const DeviceSamples&) = delete;

  // ---- By the thread that copies; on_device: by the workers. They throw CudaError; the batch is
  // not measured then.

  /// Call before `stream`, on which the batch is copied or written, waits for a slot: once for a
  /// batch, also where there is no slot yet. Null: it is not measured.
  Copy want(cudaStream_t stream, Ticks now) {
    if (!every_ && !copy_budget_.take_in_bursts(now)) return {};
    Copy copy(find_free(copies_, next_copy_));
    if (copy == nullptr) return copy;
    copy->stream_ = stream;
    if (copy->wanted_) copy->wanted_->record(stream);
    return copy;
  }
  /// Call when the stream waits for the slot, before the copy or the source's work.
  void begin(Copy& copy) const {
    if (copy != nullptr) copy->begun_.record(copy->stream_);
  }
  /// Call immediately behind the copy.
  void arrive(Copy& copy) const {
    if (copy != nullptr) (copy->arrived_ ? *copy->arrived_ : copy->ended_).record(copy->stream_);
  }
  /// Call behind the transform, or behind the work of an on_device source.
  void end(Copy& copy) const {
    if (copy != nullptr && kind_ != Kind::copies) copy->ended_.record(copy->stream_);
  }

  // ---- By the thread that stages

  /// Call for each batch that is staged, with its order (see Timeline) and its stamp.
  void hand_in(Copy copy, std::uint64_t order, Ticks staged) noexcept {
    if (!every_) choose_takes(order, copy != nullptr, staged);
    if (copy == nullptr) return;
    CopySample* const sample = copy.release();
    sample->order_ = order;
    sample->staged_ = staged;
    sample->is_handed_in_.store(true, std::memory_order_release);
  }

  // ---- By the thread that takes a batch, in this order. They throw CudaError; the batch is not
  // measured then.

  /// Call before the batch is looked for. `order`: the order that it will have if none fails.
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
  /// Call when there is a batch, before the stream waits for it.
  void find(cudaStream_t consumer) {
    if (is_asked_ && pending_->found_) pending_->found_->record(consumer);
  }
  /// Call when the stream waits for the batch. Returns a number for the stream (see
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
      sample->uses_.store(2, std::memory_order_relaxed);  // by the reader, and as a recent one
      sample->is_handed_in_.store(true, std::memory_order_release);
    }
    if (recent_.back() != nullptr) end_use(*recent_.back());
    std::move_backward(recent_.begin(), recent_.end() - 1, recent_.end());
    recent_.front() = sample;
    return streams_.note(consumer);
  }

  // ---- By any thread

  /// Adds what the device has reached to the timeline and to the sums. Does nothing while another
  /// thread is in it, or while CUDA has an error that the user has not checked for yet: a question
  /// would replace it. Allowed during stream captures.
  void collect() noexcept {
    if (cudaPeekAtLastError() != cudaSuccess) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    const CaptureModeGuard guard;
    collect_from(copies_, next_copy_, guard);
    collect_from(takes_, next_take_, guard);
  }
  /// The same, at most once in kPeriod.
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
  // On average at most one batch in so many nanoseconds is measured, so that batches of a few
  // microseconds do not pay for it. Batches that take longer are all measured.
  static constexpr Ticks kPeriod = 100'000, kTakePeriod = 1'000'000;

  /// Counts what was spent of one batch in `period`, up to kBurst of them.
  class Budget {
   public:
    explicit Budget(Ticks period) : period_(period) {}

    bool is_full(Ticks now) const { return now - spent_.load(std::memory_order_relaxed) >= most(); }
    /// False: there is nothing left.
    bool take(Ticks now) {
      Ticks spent = spent_.load(std::memory_order_relaxed);
      const Ticks then = std::max(spent, now - most()) + period_;
      return then <= now && spent_.compare_exchange_strong(spent, then, std::memory_order_relaxed);
    }
    /// The same; what is spent has to fill up before the next one is taken.
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
    std::atomic<Ticks> spent_{0};  // until then
    std::atomic<bool> in_burst_{false};
  };

  /// Events around the request of a batch.
  struct TakeSample : Sample {
    explicit TakeSample(bool every) {
      if (every) found_.emplace(cudaEventDefault);
    }
    Event asked_{cudaEventDefault}, ready_{cudaEventDefault};
    std::optional<Event> found_;  // between the two: there is a batch, its copy is queued
    std::uint64_t turns_ = 0;
    TakeSample* before_ = nullptr;  // of the batch that the stream took before
  };

  /// Takes are measured where copies are, for the batches after this one as far as the budget goes.
  void choose_takes(std::uint64_t order, bool is_sampled, Ticks now) noexcept {
    std::uint64_t end = end_of_takes_.load(std::memory_order_relaxed);
    if (end <= order) {
      if (!is_sampled || !take_budget_.is_full(now)) return;
      first_take_.store(end = order, std::memory_order_relaxed);
    }
    while (end < order + kBurst && take_budget_.take(now)) ++end;
    end_of_takes_.store(end, std::memory_order_relaxed);
  }

  /// Returns nullptr where all are in use. By the acquire, nobody reads what the sample was before.
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
  /// By the release, whoever uses it next does so after what was read of it.
  static void end_use(Sample& sample) noexcept {
    sample.uses_.fetch_sub(1, std::memory_order_release);
  }

  /// Where a sample is not reached, the next ones of its stream are not either.
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

  /// Returns the time between two events, or nullopt while one of them is not reached. It leaves no
  /// error behind.
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
      // Workers end their batches in any order: each stands for none but itself.
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
    // The first batch fills the pipeline. Of others, a stream in turns has a part.
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
  std::atomic<std::size_t> next_copy_{0}, next_take_{0};  // hints where to look for a free one
  Budget copy_budget_{kPeriod};

  // The thread that stages writes these; the one that takes reads them, now or later.
  Budget take_budget_{kTakePeriod};
  std::atomic<std::uint64_t> first_take_{0}, end_of_takes_{0};  // the takes that are measured

  // Only the thread that takes uses these.
  ConsumerStreams streams_;
  TakeSample* pending_ = nullptr;                              // for the next batch
  bool is_asked_ = false;                                      // its request is recorded
  std::array<TakeSample*, ConsumerStreams::kTurns> recent_{};  // of the last batches, latest first

  std::atomic<Ticks> collected_at_{0};
  mutable std::mutex mutex_;  // of the reader, and of what follows
  Ticks first_staged_ = 0;    // of the batches that were measured
  DeviceSums sums_;
};

}  // namespace penstock::detail
