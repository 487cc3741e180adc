// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordedBatch: the stamps and costs of a batch, the input of a replay. record_batches() selects
// the longest sequence of batches in which the consumer did not pause.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/medians.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <span>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// All times are in nanoseconds.
struct RecordedBatch {
  double opened = 0, filled = 0, staged = 0, asked = 0, taken = 0, released = 0;  ///< the stamps
  // Times on the device, which BatchCosts reconstructs:
  double copied = 0;   ///< its copy ended
  double arrived = 0;  ///< its transform ended; on_device: its slot was written
  double begun = 0;    ///< the consumer's stream began to work on it

  // Costs, without the waits for other batches. BatchCosts computes those that the stamps do not
  // show. A time on the device that was not measured is negative until then.
  double fill = 0;      ///< time of all workers together inside the source
  double handover = 0;  ///< time that its worker needs outside the source
  double source = -1;   ///< work of an on_device source on the device
  double issue = 0;     ///< time from when it could be staged until it was staged
  double copy = -1, transform = -1;
  double stream_work = 0;  ///< work of the consumer's stream
  double thread_work = 0;  ///< work of the consumer's thread, without its waits

  double slot = -1, wait = -1, step = -1;  ///< as in DeviceDurations
  int stream = 0;                          ///< number of the consumer's stream
  bool first_fill = false;                 ///< it was the first batch of a worker

  static constexpr std::size_t kMinBatches = 8;  ///< fewer batches are too few for a replay
  static constexpr int kStreams = 16;            ///< stream numbers are taken modulo this

  double consumed() const { return begun + step; }
  /// The time from the delivery of this batch until the consumer asked for the next one.
  double loop_time(const RecordedBatch& next) const { return next.asked - taken; }
};

/// Keeps the longest sequence of batches without a pause of the consumer, and removes its first
/// batches. A pause is an iteration of the loop that takes over 32 times the mean, such as a
/// validation or a checkpoint. The first batches are removed because the queues are unusually full
/// after a pause, and empty when a run begins.
inline void keep_longest_unpaused_sequence(std::vector<RecordedBatch>& batches, std::size_t queues,
                                           Medians& medians) {
  constexpr double kShortest = 1e6, kFarLonger = 32, kManySteps = 8;
  const std::size_t count = batches.size();
  const auto loop_time = [&](std::size_t k) { return batches[k].loop_time(batches[k + 1]); };
  double turns = 0;
  for (std::size_t k = 0; k + 1 < count; ++k) turns += loop_time(k);
  const double step =
      medians.of(count - 1, [&](std::size_t k) { return batches[k + 1].asked - batches[k].asked; });
  const double pause =
      std::max({kShortest, kFarLonger * turns / static_cast<double>(count - 1), kManySteps * step});
  std::size_t from = 0, first = 0, length = 0;
  for (std::size_t k = 0; k < count; ++k) {
    if (k + 1 < count && loop_time(k) <= pause) continue;
    double& device = batches[k].step;  // the last batch before a pause: its step may include the
                                       // pause
    if (k + 1 < count || device > pause) device = -1;
    if (k + 1 - from > length) {
      first = from;
      length = k + 1 - from;
    }
    from = k + 1;
  }
  const bool starts = first > 0 || batches[0].first_fill;
  const std::size_t enough =
      length > RecordedBatch::kMinBatches ? length - RecordedBatch::kMinBatches : 0;
  const std::size_t start = starts ? std::min({queues, length / 3, enough}) : 0;
  const auto kept = batches.begin() + static_cast<std::ptrdiff_t>(first);
  batches.erase(kept + static_cast<std::ptrdiff_t>(length), batches.end());
  batches.erase(batches.begin(), kept + static_cast<std::ptrdiff_t>(start));
}

/// Replaces the fill time of a worker's first batch by the median if it is far longer: the worker
/// may have opened files or filled a cache.
inline void replace_first_fills(std::vector<RecordedBatch>& batches, Medians& medians) {
  constexpr double kFarLonger = 4;
  const double usual = medians.of(batches, &RecordedBatch::fill);
  for (RecordedBatch& batch : batches)
    if (batch.first_fill && batch.fill > kFarLonger * usual) batch.fill = usual;
}

/// Sets `batches` to those of the finished batches that a replay uses. Both are in the order of
/// delivery.
inline void record_batches(std::span<const FinishedBatch> finished, const PipelineShape& shape,
                           std::vector<RecordedBatch>& batches, Medians& medians) {
  batches.clear();
  for (const auto& [number, times, device] : finished) {
    const auto at = [](Ticks stamp) { return static_cast<double>(stamp); };
    batches.push_back({.opened = at(times.opened),
                       .filled = at(times.filled),
                       .staged = at(std::max(times.staged, times.filled)),
                       .asked = at(times.asked),
                       .taken = at(std::max(times.taken, times.asked)),
                       .released = at(std::max({times.released, times.taken, times.asked})),
                       .fill = at(times.source_time()),
                       .source = at(device.source),
                       .copy = at(device.copy),
                       .transform = at(device.transform),
                       .slot = at(device.slot),
                       .wait = at(device.wait),
                       .step = at(device.step),
                       .stream = times.stream() % RecordedBatch::kStreams,
                       .first_fill = times.first_of_worker()});
  }
  if (batches.size() < RecordedBatch::kMinBatches) return;
  keep_longest_unpaused_sequence(batches, shape.present.host_depth + shape.present.device_depth,
                                 medians);
  replace_first_fills(batches, medians);
}

/// Returns the time from one batch to the next by the stamps of the host. It is that of the slowest
/// of three rates, at which batches were filled, staged and taken: while a queue drains or fills,
/// one stage is faster than the pipeline can be in the long run. `round`: the number of workers.
inline double stamped_period(std::span<const RecordedBatch> batches, std::size_t round) {
  const std::size_t count = batches.size();
  // Workers that begin together finish together, so only whole rounds of them give a steady rate.
  std::size_t apart = count - std::clamp<std::size_t>(round, 1, count / 4);
  if (apart >= round) apart -= apart % round;
  double period = 1;
  for (double RecordedBatch::*stamp :
       {&RecordedBatch::filled, &RecordedBatch::staged, &RecordedBatch::taken}) {
    double sum = 0;
    for (std::size_t k = 0; k + apart < count; ++k)
      sum += batches[k + apart].*stamp - batches[k].*stamp;
    period =
        std::max(period, sum / static_cast<double>(apart) / static_cast<double>(count - apart));
  }
  return period;
}

}  // namespace penstock::detail
