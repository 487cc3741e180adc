// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReplayPass: one replay of recorded batches. Each batch takes its recorded time in each stage. The
// replay adds the waits for a worker, a block of pinned memory, a device slot, the copy stream and
// the consumer.

#include <algorithm>
#include <array>
#include <cstddef>
#include <penstock/detail/observe/batch_costs.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

struct ReplaySettings : TuneSettings {
  /// Factors on the times of the stages. `source` also applies to the work of an on_device source
  /// on the device.
  double source = 1, copy = 1, transform = 1, consumer = 1;
  double handover = 1, issue = 1;  ///< factors on the members of RecordedBatch
};

/// When a batch passes each stage, in nanoseconds since the replay began.
struct ReplayEvent {
  double filled = 0;               ///< the workers have filled it
  double issued = 0;               ///< its copy is queued, so that next() may return it
  double copied = 0;               ///< its copy ends; on_device: its slot is written
  double staged = 0;               ///< its transform ends
  double delivered = 0;            ///< next() returns it
  double begun = 0, consumed = 0;  ///< the consumer's stream begins it, and ends it
  double asked_next = 0;           ///< the loop asks for the next batch
  double released = 0;             ///< its lease ends
  double waited = 0;               ///< how long the consumer waits for it with nothing else to do
  std::size_t cost = 0;            ///< index of the recorded batch whose costs it has
};

class ReplayPass {
 public:
  using Index = std::ptrdiff_t;
  /// A worker, or a batch that a worker has begun.
  struct Filling {
    double free = 0;    ///< when it is done
    double stream = 0;  ///< when the worker's stream is done
    Index batch = 0;    ///< the batch that was begun
  };
  static constexpr std::size_t kFillings = 2 * BatchCosts::kMostWorkers;

  /// Replays the batches of `costs` twice. `events` needs an element for each of these, `fillings`
  /// needs kFillings elements.
  ReplayPass(const BatchCosts& costs, const ReplaySettings& settings, std::span<ReplayEvent> events,
             std::span<Filling> fillings) noexcept;

  Index count() const noexcept { return count_; }
  ReplayEvent& at(Index i) const noexcept { return events_[static_cast<std::size_t>(i)]; }
  const RecordedBatch& cost(Index i) const noexcept { return costs_.all()[at(i).cost]; }
  /// The member `of` of batch i, or 0 if i is before the first batch.
  double when(double ReplayEvent::*of, Index i) const noexcept { return i < 0 ? 0 : at(i).*of; }
  /// When the consumer has finished batch i.
  double end(Index i) const noexcept { return std::max(at(i).asked_next, at(i).consumed); }

 private:
  double fill_time(const RecordedBatch& cost) const noexcept {
    return cost.fill * settings_.source + cost.handover * settings_.handover;
  }
  static Filling& earliest(std::span<Filling> some) noexcept {
    return *std::min_element(some.begin(), some.end(),
                             [](const Filling& a, const Filling& b) { return a.free < b.free; });
  }
  void fill(Index i) noexcept;
  void fill_unordered(Index i) noexcept;
  void write_slot(Index i, Filling& worker) noexcept;
  double readers_done(Index i) const noexcept;
  void stage(Index i) noexcept;
  void consume(Index i) noexcept;

  static constexpr int kMostPieces = 16;  // More pieces would only cost time.

  const BatchCosts& costs_;
  const ConsumerLoop& loop_;
  const PipelineShape& shape_;
  const ReplaySettings settings_;
  const Index count_, blocks_, slots_;
  const int pieces_;
  const std::span<ReplayEvent> events_;
  const std::span<Filling> workers_, open_;  // open_: the batches that were begun, in any order
  std::size_t opened_ = 0;                   // the number of these
  Index claimed_ = 0;
  std::array<double, BatchCosts::kStreams> streams_{};  // when each stream of the consumer is done
};

inline ReplayPass::ReplayPass(const BatchCosts& costs, const ReplaySettings& settings,
                              std::span<ReplayEvent> events, std::span<Filling> fillings) noexcept
    : costs_(costs),
      loop_(costs.loop()),
      shape_(costs.shape()),
      settings_(settings),
      count_(static_cast<Index>(costs.all().size())),
      blocks_(static_cast<Index>(std::max<std::size_t>(1, settings.host_depth))),
      slots_(static_cast<Index>(std::max(loop_.later_calls + 1, settings.device_depth))),
      pieces_(std::min(shape_.pieces(), kMostPieces)),
      events_(events),
      workers_(
          fillings.first(std::clamp<std::size_t>(settings.workers, 1, BatchCosts::kMostWorkers))),
      open_(fillings.last(BatchCosts::kMostWorkers)) {
  std::fill(workers_.begin(), workers_.end(), Filling{});
  for (Index i = 0; i < 2 * count_; ++i) {
    at(i) = {};
    at(i).cost = static_cast<std::size_t>(i % count_);
    if (shape_.on_device)
      write_slot(i, earliest(workers_));
    else if (shape_.setup.ordered)
      fill(i);
    else
      fill_unordered(i);
    stage(i);
    consume(i);
  }
}

// ---- The workers --------------------------------------------------------------------------------

/// The pieces of the batch go one by one to the worker that is free first.
inline void ReplayPass::fill(Index i) noexcept {
  ReplayEvent& event = at(i);
  const double piece = fill_time(cost(i)) / pieces_;
  const double block = when(&ReplayEvent::copied, i - blocks_);
  for (int taken = 0; taken < pieces_; ++taken) {
    Filling& worker = earliest(workers_);
    worker.free = std::max(worker.free, block) + piece;
    event.filled = std::max(event.filled, worker.free);
  }
}

/// The next batch that is delivered is the one that is filled first. Before that, free workers
/// begin further batches if there are blocks for them.
inline void ReplayPass::fill_unordered(Index i) noexcept {
  while (claimed_ < 2 * count_ && claimed_ - blocks_ < i && opened_ < open_.size()) {
    Filling& worker = earliest(workers_);
    const double begun = std::max(worker.free, when(&ReplayEvent::copied, claimed_ - blocks_));
    if (opened_ > 0 && begun >= earliest(open_.first(opened_)).free) break;
    const RecordedBatch& batch = costs_.all()[static_cast<std::size_t>(claimed_ % count_)];
    worker.free = begun + fill_time(batch) / pieces_;
    open_[opened_++] = {worker.free, 0, claimed_++};
  }
  Filling& first = earliest(open_.first(opened_));
  ReplayEvent& event = at(i);
  event.cost = static_cast<std::size_t>(first.batch % count_);
  event.filled = first.free;
  first = open_[--opened_];
}

/// An on_device source writes a slot instead of a block, and nothing is copied.
inline void ReplayPass::write_slot(Index i, Filling& worker) noexcept {
  ReplayEvent& event = at(i);
  const double readers = readers_done(i), work = cost(i).source * settings_.source;
  const double opened = std::max(worker.free, when(&ReplayEvent::released, i - slots_));
  if (costs_.source_queues()) {
    event.filled = opened + fill_time(cost(i));
    event.copied = std::max(std::max({opened, worker.stream, readers}) + work, event.filled);
  } else {
    const bool waits = costs_.source_waits_for_readers();
    event.filled = std::max(opened, waits ? readers : 0) + fill_time(cost(i));
    event.copied = std::max(event.filled, readers);
  }
  worker = {event.filled, event.copied};
}

// ---- The copy stream ----------------------------------------------------------------------------

/// Returns when the readers of the slot of batch i have finished. If leases end early, the work on
/// the last batch was not yet queued when its lease ended, so it does not count.
inline double ReplayPass::readers_done(Index i) const noexcept {
  const Index last = i - slots_ + static_cast<Index>(loop_.later_calls);
  if (last < 0) return 0;
  if (!loop_.ends_early) return at(last).consumed;
  return std::max(when(&ReplayEvent::consumed, last - 1), at(last).staged);
}

inline void ReplayPass::stage(Index i) noexcept {
  ReplayEvent& event = at(i);
  event.issued = std::max(when(&ReplayEvent::issued, i - 1), event.filled);
  if (shape_.on_device) {
    event.issued += cost(i).issue * settings_.issue;
    event.staged = event.copied;
    return;
  }
  event.issued = std::max(event.issued, when(&ReplayEvent::released, i - slots_)) +
                 cost(i).issue * settings_.issue;
  event.copied = std::max({event.issued, when(&ReplayEvent::staged, i - 1), readers_done(i)}) +
                 cost(i).copy * settings_.copy;
  event.staged = event.copied + cost(i).transform * settings_.transform;
}

// ---- The consumer -------------------------------------------------------------------------------

inline void ReplayPass::consume(Index i) noexcept {
  ReplayEvent& event = at(i);
  const double asked = when(&ReplayEvent::asked_next, i - 1);
  event.delivered = asked >= event.issued ? asked : event.issued + loop_.wake;
  double& stream = streams_.at(static_cast<std::size_t>(cost(i).stream));
  event.begun = std::max({event.delivered, event.staged, stream});
  event.waited = event.begun - std::max(asked, stream);
  event.consumed = stream = event.begun + cost(i).stream_work * settings_.consumer;
  const double done = loop_.waits == LoopWaits::for_this_step ? event.consumed
                      : loop_.waits == LoopWaits::for_last_step
                          ? when(&ReplayEvent::consumed, i - 1)
                          : 0;
  event.asked_next = std::max(event.delivered, done) + cost(i).thread_work * settings_.consumer;
  const Index lease = i - static_cast<Index>(loop_.later_calls);
  if (lease < 0) return;
  at(lease).released = loop_.ends_early
                           ? event.delivered
                           : std::max(event.delivered, event.asked_next - loop_.after_lease);
}

}  // namespace penstock::detail
