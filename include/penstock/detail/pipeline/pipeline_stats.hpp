// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pipeline: the members that make its statistics, and say why a consumer waits in vain.

#include <penstock/detail/pipeline/pipeline.hpp>
#include <tuple>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Counts every eighth time only, since it reads cache lines that the workers write for each batch.
/// Only the thread that stages calls this.
PENSTOCK_INLINE void Pipeline::sample_queue() noexcept {
  constexpr std::uint64_t kBatchesPerSample = 8;
  if (ring_.staged_position() % kBatchesPerSample != 0) return;
  add_alone(queued_, std::uint64_t{ring_.count_filled()});
  add_alone(samplings_, std::uint64_t{1});
}

PENSTOCK_INLINE StageStats Pipeline::source_stats() const {
  StageStats stats{.capacity = options_.depth};
  for (const WorkerTrace& trace : traces_) {
    stats.busy += trace.busy();
    stats.waiting_for_room += trace.waiting();
    stats.batches += trace.batches();
    stats.bytes += trace.bytes();
  }
  const auto samplings = static_cast<double>(samplings_.load(std::memory_order_relaxed));
  if (samplings > 0)
    stats.queued = static_cast<double>(queued_.load(std::memory_order_relaxed)) / samplings;
  return stats;
}

PENSTOCK_INLINE Stats Pipeline::stats() {
  const Callers::Call call(callers_);
  Stats stats;
  stats.setup = route_->setup;
  stats.source = source_stats();
  stats.source_reads = ReadCounts{};
  for (const WorkerTrace& trace : traces_) {
    add_known(stats.source_reads, trace.reads());
    stats.worker_cpu += trace.cpu();
  }
  add_device(stats);
  add_ended(stats);
  stats.skipped = log_.skipped();
  stats.replaced = log_.replaced();
  stats.workers = options_.workers;
  stats.host_depth = route_->on_device ? 0 : options_.depth;
  stats.device_depth = route_->options.device_depth;
  if (route_->tuner) route_->tuner->add_to(stats);
  auto recent = std::make_shared<RecentBatches>();
  route_->timeline.copy(recent->batches);
  stats.recent = std::move(recent);
  stats.host_bytes = route_->blocks.allocated_bytes();
  const auto& placement = route_->placement;
  if (!placement->report.empty()) stats.placement = {placement, &placement->report};
  return stats;
}

/// Adds what was measured on the device.
PENSTOCK_INLINE void Pipeline::add_device(Stats& stats) {
  route_->samples.collect();
  const DeviceSums sums = route_->samples.sums();
  route_->stage.add_to(stats, sums);
  if (!route_->options.device_times) {
    stats.waits = sums.waits;
    return;
  }
  stats.device = sums.times;
  stats.device->copies = stats.copy.timed;
}

/// Adds what the consumer got, and what the stamps tell of the batches whose leases have ended.
PENSTOCK_INLINE void Pipeline::add_ended(Stats& stats) const {
  using std::chrono::nanoseconds;
  const TimelineSums sums = route_->timeline.sums();
  stats.consumer = {.busy = nanoseconds(sums.consuming),
                    .waiting_for_input = nanoseconds(sums.waiting),
                    .batches = route_->delivered,
                    .bytes = stats.copy.bytes};
  if (const Ticks first = route_->first_taken; first != 0)
    stats.first_batch = nanoseconds(first - route_->constructed);
  stats.longest_wait = nanoseconds(sums.longest_wait);
  stats.longest_fill = nanoseconds(sums.longest_fill);
  stats.copy.queued = static_cast<double>(route_->queued) /
                      static_cast<double>(std::max<std::uint64_t>(1, stats.consumer.batches));
  stats.setup.second_stream = route_->second_stream;
}

PENSTOCK_INLINE std::vector<Failure> failures(const Pipeline& pipeline) {
  return pipeline.failure_log().kept();
}

// ---- StallError ---------------------------------------------------------------------------------

PENSTOCK_INLINE void Pipeline::throw_stall() const {
  const PrefetcherOptions& options = route_->options;
  const std::size_t parked = route_->stage.arena().parked_slots();
  const bool has_slot = route_->leased() + parked < options.device_depth;
  const WorkerActivity activity = has_slot ? oldest_activity() : WorkerActivity{};
  const std::string skips = has_slot ? why_skipped() : std::string();
  std::string stage = "consumer", why;
  std::uint64_t number = position_;
  if (!has_slot) {
    why = "all " + std::to_string(options.device_depth) +
          " device slots are leased: end a lease before next(), or raise " +
          (route_->tuner ? "Tune::device_slots" : "device_depth");
    if (parked != 0)
      why += "; " + std::to_string(parked) + " of them wait for the end of a stream capture";
  } else {
    stage = activity.state == WorkerState::ahead && skips.empty()    ? "read ahead"
            : activity.state == WorkerState::memory && skips.empty() ? "copy"
            : route_->on_device                                      ? "device source"
                                                                     : "source";
    if (activity.state != WorkerState::idle) number = activity.number;
    why = skips;
    // Where batches are skipped, that a worker waits says nothing: there is always one.
    if (skips.empty() || is_work(activity.state)) {
      if (!why.empty()) why += "; ";
      why += why_busy(activity);
    }
  }
  const ScopedRange range(markers::stall, number % batches_);  // asks penstock-trace for a dump
  throw StallError(stage, number / batches_, number % batches_, options.stall_timeout, why);
}

/// Returns what the worker with the oldest batch does.
PENSTOCK_INLINE WorkerActivity Pipeline::oldest_activity() const {
  WorkerActivity oldest;
  // A worker gets its number when it has all that it needs to fill the batch. One that waits shows
  // the number that was next when its wait began: so workers inside the source count as older.
  const auto age = [](const WorkerActivity& activity) {
    return std::tuple(activity.state == WorkerState::idle, !is_work(activity.state),
                      activity.number, activity.since);
  };
  for (const WorkerTrace& trace : traces_) {
    const WorkerActivity activity = trace.activity();
    if (age(activity) < age(oldest)) oldest = activity;
  }
  return oldest;
}

PENSTOCK_INLINE std::string Pipeline::why_busy(const WorkerActivity& activity) {
  if (activity.state == WorkerState::idle)
    return "no worker is inside a batch: is one in the sampler, or in the function that makes its "
           "source (per_worker)?";
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::nanoseconds(ticks() - activity.since));
  return std::string("the worker with the oldest batch is ") + to_string(activity.state) +
         ", for " + std::to_string(since.count()) + " ms";
}

/// Says what the failure policy has skipped since the last delivery. Empty: nothing.
PENSTOCK_INLINE std::string Pipeline::why_skipped() const {
  const std::uint64_t all = log_.skipped(), before = skipped_before_;
  if (all <= before) return {};
  const char* const what = log_.counts_samples() ? " samples" : " batches";
  return "the failure policy has skipped " + std::to_string(all - before) + what +
         (before == 0 ? " and nothing was left" : " since the last batch") +
         ", the last time: " + log_.last();
}

}  // namespace penstock::detail
