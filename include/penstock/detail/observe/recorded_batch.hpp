// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordedBatch: a batch that a replay goes by. Of what was recorded, record_batches() takes the
// longest stretch without a pause of the consumer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/observe/medians.hpp>
#include <penstock/detail/observe/pipeline_shape.hpp>
#include <span>
#include <vector>

namespace penstock::detail {

/// A batch, with all times in nanoseconds.
struct RecordedBatch {
  double opened = 0, filled = 0, staged = 0, asked = 0, taken = 0, released = 0;  ///< the stamps
  // BatchCosts reconstructs when the device came to the batch:
  double copied = 0;   ///< its copy was done
  double arrived = 0;  ///< and the transform behind it; on_device: the slot was written
  double begun = 0;    ///< the consumer's stream had the batch

  // What it cost, without its waits for other batches. BatchCosts finds what the stamps do not
  // tell; where nothing was measured on the device, a time is negative until then.
  double fill = 0;      ///< time inside the source, of all workers together
  double handover = 0;  ///< time that its worker needs beside that
  double source = -1;   ///< of an on_device source: its work on the device
  double issue = 0;     ///< from when it could be staged until it was
  double copy = -1, transform = -1;
  double device = 0;  ///< the consumer's stream works on it
  double host = 0;    ///< the consumer's thread works, beside its waits

  double slot = -1, wait = -1, step = -1;  ///< as in DeviceDurations
  int stream = 0;                          ///< the consumer's
  bool first_fill = false;                 ///< a worker filled its first batch

  static constexpr std::size_t kFewest = 8;  ///< Fewer are of no use.
  static constexpr int kStreams = 16;  ///< streams that take in turn; more are told apart modulo it

  double worked() const { return begun + step; }
  /// Time on the consumer's thread until it asked for the next batch.
  double turn(const RecordedBatch& next) const { return next.asked - taken; }
};

/// Of the stretches between two pauses of the consumer (a validation, a checkpoint: a turn of the
/// loop over 32 times the mean one) the longest is kept, without its start: there the queues are as
/// full as the pause has left them, or as empty as they are when a run begins.
inline void keep_longest_stretch(std::vector<RecordedBatch>& batches, std::size_t queues,
                                 Medians& medians) {
  constexpr double kShortest = 1e6, kFarLonger = 32, kManySteps = 8;
  const std::size_t count = batches.size();
  const auto turn = [&](std::size_t k) { return batches[k].turn(batches[k + 1]); };
  double turns = 0;
  for (std::size_t k = 0; k + 1 < count; ++k) turns += turn(k);
  const double step =
      medians.of(count - 1, [&](std::size_t k) { return batches[k + 1].asked - batches[k].asked; });
  const double pause =
      std::max({kShortest, kFarLonger * turns / static_cast<double>(count - 1), kManySteps * step});
  std::size_t from = 0, first = 0, length = 0;
  for (std::size_t k = 0; k < count; ++k) {
    if (k + 1 < count && turn(k) <= pause) continue;
    double& device = batches[k].step;  // It may include the pause.
    if (k + 1 < count || device > pause) device = -1;
    if (k + 1 - from > length) {
      first = from;
      length = k + 1 - from;
    }
    from = k + 1;
  }
  const bool starts = first > 0 || batches[0].first_fill;
  const std::size_t enough = length > RecordedBatch::kFewest ? length - RecordedBatch::kFewest : 0;
  const std::size_t start = starts ? std::min({queues, length / 3, enough}) : 0;
  const auto kept = batches.begin() + static_cast<std::ptrdiff_t>(first);
  batches.erase(kept + static_cast<std::ptrdiff_t>(length), batches.end());
  batches.erase(batches.begin(), kept + static_cast<std::ptrdiff_t>(start));
}

/// A worker's first batch, where it took far longer than the others: it opened files, or filled a
/// cache.
inline void replace_first_fills(std::vector<RecordedBatch>& batches, Medians& medians) {
  constexpr double kFarLonger = 4;
  const double usual = medians.of(batches, &RecordedBatch::fill);
  for (RecordedBatch& batch : batches)
    if (batch.first_fill && batch.fill > kFarLonger * usual) batch.fill = usual;
}

/// Sets `batches` to what is kept of those that have ended. Both are in the order of delivery.
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
  if (batches.size() < RecordedBatch::kFewest) return;
  keep_longest_stretch(batches, shape.present.host_depth + shape.present.device_depth, medians);
  replace_first_fills(batches, medians);
}

/// From one batch to the next, as the host's stamps tell, of so many workers: by the slowest of the
/// rates at which batches were filled, staged and taken. While the consumer takes what was ready
/// before, or fills its queue, the others tell how long that will last.
inline double stamped_period(std::span<const RecordedBatch> batches, std::size_t round) {
  const std::size_t count = batches.size();
  // Workers that began together come back together: whole rounds of them are steady.
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
