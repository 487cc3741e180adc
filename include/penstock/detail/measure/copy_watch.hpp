// SPDX-License-Identifier: Apache-2.0
#pragma once

// CopyWatch: records events at the beginning and the end of each copy on the copy stream, and
// measures how long that stream copies, waits for the readers of a slot, or has nothing to copy.
// Nothing here blocks.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <penstock/cuda.hpp>
#include <penstock/detail/measure/span_sums.hpp>
#include <penstock/detail/measure/worker_trace.hpp>
#include <vector>

namespace penstock::detail {

class CopyWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// `copies`: the most that are unfinished, or whose end may still be waited for, at a time.
  /// `timed`: exact times, by timed events for each copy: costs two more records and some reads.
  /// Without, sample() polls the oldest copy and charges the elapsed time to the state it finds;
  /// the beginnings of copies are recorded, and samples taken, at most every kPeriod.
  CopyWatch(std::size_t copies, bool timed) : timed_(timed) {
    const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    const std::size_t marks = timed ? copies + kBeside + 1 : copies;
    for (std::size_t i = 0; i < marks; ++i) marks_.emplace_back(flags);
    for (std::size_t i = 0; timed && i < marks_.size(); ++i) queued_.emplace_back(flags);
  }

  // ---- By the thread that issues copies -------------------------------------------------------

  /// Call when the batch of the next copy is ready, before the stream waits for its slot. Repeated
  /// calls do nothing.
  void queue(cudaStream_t stream) {
    if (!timed_ || is_queued_) return;
    queued_[issued() % queued_.size()].record(stream);
    is_queued_ = true;
  }
  /// Call immediately before and after a copy. The event that end() returns stays valid until
  /// `copies` more copies have begun.
  void begin(cudaStream_t stream) {
    queue(stream);
    const bool records = timed_ || is_due(begun_at_, Clock::now());
    next().has_begin.store(records, std::memory_order_relaxed);
    if (records) next().begun.record(stream);
  }
  cudaEvent_t end(cudaStream_t stream) {
    Mark& mark = next();
    mark.copied.record(stream);
    is_queued_ = false;
    issued_.fetch_add(1, std::memory_order_release);
    return mark.copied.get();
  }

  // ---- By any thread --------------------------------------------------------------------------

  /// Polls the oldest unfinished copy. Call at the end of a lease, before that makes a new copy
  /// possible: a copy that was just issued is always found running, whatever the bottleneck. Does
  /// nothing while another thread polls. Costs one reading of the clock; once in kPeriod two event
  /// queries, and one more for each copy that ended since.
  void sample() noexcept {
    if (!enter()) return;
    if (timed_)
      pass_ended(CaptureModeGuard());
    else if (const auto before = sampled_at_, now = Clock::now(); is_due(sampled_at_, now))
      charge(before == Clock::time_point() ? Clock::duration() : now - before);
    leave();
  }
  /// Adds up the timed copies that are done, without sampling.
  void collect() noexcept {
    if (timed_) sample();
  }

  std::uint64_t issued() const { return issued_.load(std::memory_order_relaxed); }
  /// Copies that were timed by events.
  std::uint64_t timed() const { return sums_.count(); }

  // How long the stream copied, waited for the readers of a slot, or had nothing to copy.
  std::chrono::nanoseconds running() const { return load(running_) + sums_.lasts(); }
  std::chrono::nanoseconds held() const { return load(held_) + sums_.middles(); }
  std::chrono::nanoseconds idle() const { return load(idle_) + sums_.gaps(); }

 private:
  // For timed copies: one is being recorded, one is the beginning of the next span. A copy's host
  // memory may also be in use again before its end event is reached.
  static constexpr std::size_t kBeside = 2;

  // Between samples, so that batches of a few microseconds do not pay for their measurement.
  static constexpr std::chrono::microseconds kPeriod{100};

  struct Mark {
    explicit Mark(unsigned flags) : begun(flags), copied(flags) {}
    Event begun, copied;
    std::atomic<bool> has_begin{false};  // `begun` is of this copy
  };

  static std::chrono::nanoseconds load(const std::atomic<Clock::rep>& value) {
    return std::chrono::nanoseconds(value.load(std::memory_order_relaxed));
  }
  static bool done(const Event& event, const CaptureModeGuard& guard) noexcept {
    return query(event.get(), guard) == cudaSuccess;
  }

  Mark& at(std::uint64_t copy) { return marks_[copy % marks_.size()]; }
  Mark& next() { return at(issued_.load(std::memory_order_relaxed)); }

  /// kPeriod has passed since `last`, which becomes `now` then.
  static bool is_due(Clock::time_point& last, Clock::time_point now) {
    const bool due = now - last >= kPeriod;
    if (due) last = now;
    return due;
  }

  bool enter() noexcept {
    // A query would hide an error that the user has not checked for yet.
    return cudaPeekAtLastError() == cudaSuccess &&
           !sampling_.test_and_set(std::memory_order_acquire);
  }
  void leave() noexcept { sampling_.clear(std::memory_order_release); }

  /// Moves oldest_ past the copies that are done, and times them. Returns how many were issued.
  std::uint64_t pass_ended(const CaptureModeGuard& guard) noexcept {
    const std::uint64_t issued = issued_.load(std::memory_order_acquire);
    const std::uint64_t kept = marks_.size() - (timed_ ? kBeside : 0);
    if (issued > kept) oldest_ = std::max(oldest_, issued - kept);
    if (timed_)
      for (; oldest_ < issued && done(at(oldest_).copied, guard); ++oldest_) time(oldest_);
    else
      oldest_ = first_unfinished(oldest_, issued, guard);
    return issued;
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

  /// Adds `elapsed` to the state in which the oldest copy is found. Of a copy whose beginning was
  /// not recorded only the end is known: what the last one did stands for it.
  void charge(Clock::duration elapsed) noexcept {
    const CaptureModeGuard guard;
    if (pass_ended(guard) == oldest_) return add_alone(idle_, elapsed.count());
    const Mark& oldest = at(oldest_);
    if (oldest.has_begin.load(std::memory_order_relaxed)) began_ = done(oldest.begun, guard);
    add_alone(began_ ? running_ : held_, elapsed.count());
  }

  void time(std::uint64_t copy) noexcept {
    const Mark& mark = at(copy);
    const cudaEvent_t before = copy == 0 ? nullptr : at(copy - 1).copied.get();
    sums_.add(before, queued_[copy % queued_.size()].get(), mark.begun.get(), mark.copied.get());
  }

  const bool timed_;
  std::deque<Mark> marks_;
  std::vector<Event> queued_;  // only for timed copies
  std::atomic<std::uint64_t> issued_{0};
  bool is_queued_ = false;  // this and the next: used by the thread that issues copies
  Clock::time_point begun_at_{};
  std::atomic_flag sampling_;  // guards what follows
  std::uint64_t oldest_ = 0;   // the first copy that was not found done
  Clock::time_point sampled_at_{};
  bool began_ = true;  // the last unfinished copy that was asked
  SpanSums sums_;
  std::atomic<Clock::rep> running_{0}, held_{0}, idle_{0};
};

}  // namespace penstock::detail
