// SPDX-License-Identifier: Apache-2.0
#pragma once

// CopyWatch: records timed events around each copy on the copy stream, and behind the transform of
// its batch, and measures how long that stream copies, transforms, waits for a slot and its
// readers, or has nothing to copy. Nothing here blocks.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/observe/device_clock.hpp>
#include <penstock/detail/observe/one_reader.hpp>
#include <penstock/detail/observe/worker_trace.hpp>

namespace penstock::detail {

class CopyWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::nanoseconds;

  /// `copies`: the most that are unfinished, or whose end may still be waited for, at a time; 0:
  /// nothing is ever copied.
  /// `exact`: every copy is timed. Without, at most one in kPeriod, which stands for those before
  /// it. `transforms`: one more record for each copy that is timed.
  CopyWatch(std::size_t copies, bool exact, bool transforms)
      : exact_(exact), transforms_(transforms) {
    if (copies == 0) return;
    clock_.emplace();
    for (std::size_t i = 0; i < copies + kBeside + 1; ++i) marks_.emplace_back(transforms);
  }

  // ---- By the thread that issues copies -------------------------------------------------------

  /// Call when a batch is ready and there is no slot for it. Repeated calls do nothing.
  void lack_slot() {
    if (ready_at_ != Clock::time_point()) return;
    ready_at_ = Clock::now();
  }
  /// Call immediately before and after a copy, and after the transform behind it. The event that
  /// end() returns stays valid until `copies` more copies have begun.
  void begin(cudaStream_t stream) {
    const auto now = Clock::now();
    const bool is_timed = exact_ || now - begun_at_ >= kPeriod;
    Mark& mark = next();
    mark.is_timed.store(is_timed, std::memory_order_relaxed);
    const bool has_waited = ready_at_ != Clock::time_point();
    mark.ready_at.store(has_waited ? ready_at_ : now, std::memory_order_relaxed);
    ready_at_ = {};
    if (!is_timed) return;
    begun_at_ = now;
    clock_->set(now);
    mark.begun.record(stream);
  }
  void arrive(cudaStream_t stream) {
    if (transforms_ && next().is_timed.load(std::memory_order_relaxed))
      next().arrived->record(stream);
  }
  cudaEvent_t end(cudaStream_t stream) {
    Mark& mark = next();
    mark.copied.record(stream);
    issued_.fetch_add(1, std::memory_order_release);
    return mark.copied.get();
  }

  // ---- By any thread --------------------------------------------------------------------------

  /// Adds up the timed copies that are done. Does nothing while another thread is in it.
  void collect() noexcept {
    if (!marks_.empty()) reader_.collect([this] { pass_ended(); });
  }
  /// The same, at most once in kPeriod.
  void sample() noexcept {
    if (!marks_.empty()) reader_.sample(kPeriod, [this] { pass_ended(); });
  }

  std::uint64_t issued() const { return issued_.load(std::memory_order_relaxed); }
  /// Copies that the times below are of, those included for which others stand.
  std::uint64_t timed() const { return timed_.load(std::memory_order_relaxed); }

  // How long the stream copied, transformed, waited for a slot and its readers, or had nothing to
  // copy.
  Nanoseconds running() const { return load(running_); }
  Nanoseconds transforming() const { return load(transforming_); }
  Nanoseconds held() const { return load(held_); }
  Nanoseconds idle() const { return load(idle_); }

 private:
  // One copy is being recorded, one is the beginning of the next span. A copy's host memory may
  // also be in use again before its end event is reached.
  static constexpr std::size_t kBeside = 2;

  // So that batches of a few microseconds do not pay for their measurement.
  static constexpr std::chrono::microseconds kPeriod{100};

  struct Mark {
    explicit Mark(bool transforms) {
      if (transforms) arrived.emplace(cudaEventDefault);
    }
    Event begun{cudaEventDefault}, copied{cudaEventDefault};
    std::optional<Event> arrived;  // between the copy and the transform
    std::atomic<bool> is_timed{false};
    std::atomic<Clock::time_point> ready_at{};  // the batch was, on the host
  };

  static Nanoseconds load(const std::atomic<Clock::rep>& value) {
    return Nanoseconds(value.load(std::memory_order_relaxed));
  }
  static bool done(const Event& event, const CaptureModeGuard& guard) noexcept {
    return query(event.get(), guard) == cudaSuccess;
  }
  static Nanoseconds between(const Event& from, const Event& to) noexcept {
    return std::max(elapsed(from.get(), to.get()).value_or(Nanoseconds(0)), Nanoseconds(0));
  }

  Mark& at(std::uint64_t copy) { return marks_[copy % marks_.size()]; }
  Mark& next() { return at(issued_.load(std::memory_order_relaxed)); }

  /// Moves oldest_ past the copies that are done, and times them.
  void pass_ended() noexcept {
    const CaptureModeGuard guard;
    const std::uint64_t issued = issued_.load(std::memory_order_acquire);
    const std::uint64_t kept = marks_.size() - kBeside;
    if (issued > kept) oldest_ = std::max(oldest_, issued - kept);
    const std::uint64_t end = first_unfinished(oldest_, issued, guard);
    for (; oldest_ < end; ++oldest_)
      if (at(oldest_).is_timed.load(std::memory_order_relaxed)) time(oldest_);
  }

  /// Of the copies from `first` to before `last`, which end in this order; `last`: none.
  std::uint64_t first_unfinished(std::uint64_t first, std::uint64_t last,
                                 const CaptureModeGuard& guard) noexcept {
    while (first < last) {
      const std::uint64_t middle = first + (last - first) / 2;
      if (done(at(middle).copied, guard))
        first = middle + 1;
      else
        last = middle;
    }
    return first;
  }

  void time(std::uint64_t copy) noexcept {
    const Mark& mark = at(copy);
    const std::uint64_t before = timed();
    const auto skipped = static_cast<Clock::rep>(copy - before);
    const Nanoseconds copied = between(mark.begun, transforms_ ? *mark.arrived : mark.copied);
    const Nanoseconds transformed =
        transforms_ ? between(*mark.arrived, mark.copied) : Nanoseconds(0);
    add_alone(running_, (copied * (skipped + 1)).count());
    add_alone(transforming_, (transformed * (skipped + 1)).count());
    // The copies that were skipped ran since the one that was timed before.
    if (before > 0 && copy - before + 2 < marks_.size())
      add_wait(between(at(before - 1).copied, mark.begun) - (copied + transformed) * skipped, mark);
    timed_.store(copy + 1, std::memory_order_relaxed);
  }
  /// What went by before a copy without any other.
  void add_wait(Nanoseconds gap, const Mark& mark) noexcept {
    gap = std::max(gap, Nanoseconds(0));
    const auto ready_at = mark.ready_at.load(std::memory_order_relaxed);
    const auto since_ready = clock_->since(ready_at, mark.begun.get());
    const auto held = std::clamp(since_ready.value_or(Nanoseconds(0)), Nanoseconds(0), gap);
    add_alone(held_, held.count());
    add_alone(idle_, (gap - held).count());
  }

  const bool exact_, transforms_;
  std::deque<Mark> marks_;
  std::optional<DeviceClock> clock_;
  std::atomic<std::uint64_t> issued_{0};
  Clock::time_point begun_at_{}, ready_at_{};  // used by the thread that issues copies
  OneReader reader_;                           // of what follows
  std::uint64_t oldest_ = 0;                   // the first copy that was not found done
  std::atomic<std::uint64_t> timed_{0};
  std::atomic<Clock::rep> running_{0}, transforming_{0}, held_{0}, idle_{0};
};

}  // namespace penstock::detail
