// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <memory>
#include <ostream>
#include <penstock/detail/observe/judge.hpp>
#include <penstock/detail/observe/units.hpp>
#include <penstock/detail/observe/verdict_sentence.hpp>
#include <penstock/stats.hpp>
#include <penstock/tuning.hpp>
#include <sstream>
#include <string>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

inline void print_stage(std::ostream& out, const char* name, const StageStats& stage,
                        const char* input, const char* room) {
  std::ostringstream queue;
  if (stage.capacity > 0)
    queue << std::fixed << std::setprecision(1) << stage.queued << " of " << stage.capacity;
  out << std::left << std::setw(10) << name << std::right << std::setw(11) << in_seconds(stage.busy)
      << std::setw(11) << in_seconds(stage.waiting_for_input + stage.waiting_for_room) << "  "
      << std::left << std::setw(31)
      << (stage.waiting_for_room > stage.waiting_for_input ? room : input) << std::right
      << std::setw(9) << stage.batches << std::setw(12) << in_bytes(stage.bytes) << std::setw(12)
      << queue.str() << '\n';
}

/// Subtracts the given members of `before` from those of `now`. A result below 0 becomes 0, so the
/// snapshots may be in any order.
template <class T, class... Members>
void subtract(T& now, const T& before, Members... members) {
  ((now.*members -= std::min(now.*members, before.*members)), ...);
}

/// Returns the mean of the values after the first `count_before`. The mean of all `count` values is
/// `mean`, that of the first ones is `before`.
inline double mean_since(double mean, std::uint64_t count, double before,
                         std::uint64_t count_before) {
  if (count <= count_before) return mean;
  const double rest =
      mean * static_cast<double>(count) - before * static_cast<double>(count_before);
  return std::max(0.0, rest / static_cast<double>(count - count_before));
}

/// Returns the batches of `now` whose leases ended after all leases of `before`.
inline std::shared_ptr<const RecentBatches> recent_since(
    const std::shared_ptr<const RecentBatches>& now,
    const std::shared_ptr<const RecentBatches>& before) {
  if (now == nullptr || before == nullptr) return now;
  Ticks last = 0;
  for (const FinishedBatch& batch : before->batches) last = std::max(last, batch.times.released);
  auto rest = std::make_shared<RecentBatches>();
  std::copy_if(now->batches.begin(), now->batches.end(), std::back_inserter(rest->batches),
               [&](const FinishedBatch& batch) { return batch.times.released > last; });
  return rest;
}

}  // namespace detail

PENSTOCK_INLINE Bottleneck Stats::bottleneck() const {
  return detail::Judge(*this).verdict().stage;
}

PENSTOCK_INLINE Verdict Stats::verdict() const {
  const detail::Judge judge(*this);
  Verdict verdict = judge.verdict();
  verdict.sentence = detail::VerdictSentence(judge).text();
  return verdict;
}

PENSTOCK_INLINE Stats Stats::since(const Stats& before) const {
  Stats stats = *this;
  for (StageStats Stats::*stage :
       {&Stats::source, &Stats::copy, &Stats::transform, &Stats::consumer})
    detail::subtract(stats.*stage, before.*stage, &StageStats::busy, &StageStats::waiting_for_input,
                     &StageStats::waiting_for_room, &StageStats::batches, &StageStats::timed,
                     &StageStats::bytes);
  detail::subtract(stats.waits, before.waits, &SampledWaits::batches, &SampledWaits::waiting);
  detail::subtract(stats, before, &Stats::worker_cpu, &Stats::skipped, &Stats::replaced);
  if (stats.source_reads && before.source_reads)
    detail::subtract(*stats.source_reads, *before.source_reads, &ReadCounts::calls,
                     &ReadCounts::bytes);
  else
    stats.source_reads.reset();
  // A maximum that has not changed was reached before; the maximum since then is unknown.
  for (std::chrono::nanoseconds Stats::*longest : {&Stats::longest_wait, &Stats::longest_fill})
    if (this->*longest == before.*longest) stats.*longest = {};
  if (waits.longest == before.waits.longest) stats.waits.longest = {};
  stats.source.queued =
      detail::mean_since(source.queued, copy.batches, before.source.queued, before.copy.batches);
  stats.copy.queued = detail::mean_since(copy.queued, consumer.batches, before.copy.queued,
                                         before.consumer.batches);
  stats.recent = detail::recent_since(recent, before.recent);
  if (device && before.device) {
    detail::subtract(*stats.device, *before.device, &DeviceTimes::copies, &DeviceTimes::batches,
                     &DeviceTimes::consuming, &DeviceTimes::awaiting_batch,
                     &DeviceTimes::awaiting_copy);
    if (device->longest_wait == before.device->longest_wait) stats.device->longest_wait = {};
  }
  return stats;
}

PENSTOCK_INLINE std::ostream& operator<<(std::ostream& out, const Stats& stats) {
  std::ostringstream text;
  text << "stage            busy    waiting  for                              batches       bytes"
          "      queued\n";
  const bool copies = stats.host_depth > 0;
  detail::print_stage(text, "source", stats.source, "-",
                      copies ? "room in the ring" : "a device slot");
  if (copies) detail::print_stage(text, "copy", stats.copy, "a ready batch", "readers of the slot");
  if (stats.setup.transforms)
    detail::print_stage(text, "transform", stats.transform, "a copied batch", "-");
  detail::print_stage(text, "consumer", stats.consumer, "a batch on the device", "-");
  if (stats.skipped + stats.replaced > 0)
    text << "failed batches: " << stats.skipped << " skipped, " << stats.replaced << " replaced\n";
  text << stats.workers << " workers; ";
  if (copies)
    text << stats.host_depth << " batches in pinned memory (" << detail::in_bytes(stats.host_bytes)
         << "), ";
  text << stats.device_depth << " on the device (" << detail::in_bytes(stats.device_bytes)
       << "); first batch after " << detail::in_seconds(stats.first_batch) << '\n';
  if (stats.placement) text << "placement: " << *stats.placement << '\n';
  if (stats.tuning && !stats.tuning->last.empty())
    text << "tuned: " << stats.tuning->decisions << " changes, the last at "
         << stats.tuning->last.back() << '\n';
  const Verdict verdict = stats.verdict();
  text << "bottleneck: " << to_string(verdict.stage) << '\n' << "verdict: " << verdict.sentence;
  return out << text.str();
}

}  // namespace penstock
