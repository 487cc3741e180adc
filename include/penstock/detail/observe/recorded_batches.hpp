// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordedBatches: the stamps of the batches that a replay goes by. Of what was recorded it keeps
// the longest stretch without a pause of the consumer, in the order of delivery.

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

  double wait = -1, step = -1;  ///< as in DeviceDurations
  int stream = 0;               ///< the consumer's
  bool first_fill = false;      ///< a worker filled its first batch

  double worked() const { return begun + step; }
};

class RecordedBatches {
 public:
  static constexpr std::size_t kFewest = 8;
  static constexpr int kStreams = 16;  ///< streams that take in turn; more are told apart modulo it

  /// Allocates room for `most` batches.
  explicit RecordedBatches(std::size_t most) : most_(most), medians_(most) {
    batches_.reserve(most);
  }

  /// Of the last of `batches` as many as there is room for; fewer than kFewest are of no use.
  void load(std::span<const FinishedBatch> batches, const PipelineShape& shape);

  std::size_t count() const { return batches_.size(); }
  RecordedBatch& operator[](std::size_t k) { return batches_[k]; }
  const RecordedBatch& operator[](std::size_t k) const { return batches_[k]; }
  auto begin() { return batches_.begin(); }
  auto end() { return batches_.end(); }
  std::span<const RecordedBatch> all() const { return batches_; }
  /// Time on the consumer's thread from one call of next() to the following one.
  double turn(std::size_t k) const { return batches_[k + 1].asked - batches_[k].taken; }
  /// From one batch to the next, as the host's stamps tell, of so many workers.
  double period(std::size_t round) const;
  /// Of a member of each batch.
  double median(double RecordedBatch::*member) {
    return medians_.of(count(), [&](std::size_t k) { return batches_[k].*member; });
  }

 private:
  void keep_longest_stretch(std::size_t queues);
  void replace_first_fills();

  std::size_t most_;
  std::vector<RecordedBatch> batches_;
  Medians medians_;
};

/// In the order of delivery.
inline void RecordedBatches::load(std::span<const FinishedBatch> batches,
                                  const PipelineShape& shape) {
  batches_.clear();
  for (const auto& [number, times, device] : batches.last(std::min(batches.size(), most_))) {
    const auto at = [](Ticks stamp) { return static_cast<double>(stamp); };
    batches_.push_back({.opened = at(times.opened),
                        .filled = at(times.filled),
                        .staged = at(std::max(times.staged, times.filled)),
                        .asked = at(times.asked),
                        .taken = at(std::max(times.taken, times.asked)),
                        .released = at(std::max({times.released, times.taken, times.asked})),
                        .fill = at(times.source_time()),
                        .source = at(device.source),
                        .copy = at(device.copy),
                        .transform = at(device.transform),
                        .wait = at(device.wait),
                        .step = at(device.step),
                        .stream = times.stream() % kStreams,
                        .first_fill = times.first_of_worker()});
  }
  if (count() < kFewest) return;
  std::sort(begin(), end(),
            [](const RecordedBatch& a, const RecordedBatch& b) { return a.taken < b.taken; });
  keep_longest_stretch(shape.present.host_depth + shape.present.device_depth);
  replace_first_fills();
}

/// Of the stretches between two pauses of the consumer (a validation, a checkpoint: a turn of the
/// loop over 32 times the mean one) the longest is kept, without its start: there the queues are as
/// full as the pause has left them, or as empty as they are when a run begins.
inline void RecordedBatches::keep_longest_stretch(std::size_t queues) {
  constexpr double kShortest = 1e6, kFarLonger = 32, kManySteps = 8;
  double turns = 0;
  for (std::size_t k = 0; k + 1 < count(); ++k) turns += turn(k);
  const double step = medians_.of(
      count() - 1, [&](std::size_t k) { return batches_[k + 1].asked - batches_[k].asked; });
  const double pause = std::max(
      {kShortest, kFarLonger * turns / static_cast<double>(count() - 1), kManySteps * step});
  std::size_t from = 0, first = 0, length = 0;
  for (std::size_t k = 0; k < count(); ++k) {
    if (k + 1 < count() && turn(k) <= pause) continue;
    double& device = batches_[k].step;  // It may include the pause.
    if (k + 1 < count() || device > pause) device = -1;
    if (k + 1 - from > length) {
      first = from;
      length = k + 1 - from;
    }
    from = k + 1;
  }
  const bool starts = first > 0 || batches_[0].first_fill;
  const std::size_t enough = length > kFewest ? length - kFewest : 0;
  const std::size_t start = starts ? std::min({queues, length / 3, enough}) : 0;
  const auto kept = begin() + static_cast<std::ptrdiff_t>(first);
  batches_.erase(kept + static_cast<std::ptrdiff_t>(length), end());
  batches_.erase(begin(), kept + static_cast<std::ptrdiff_t>(start));
}

/// A worker's first batch, where it took far longer than the others: it opened files, or filled a
/// cache.
inline void RecordedBatches::replace_first_fills() {
  constexpr double kFarLonger = 4;
  const double usual = median(&RecordedBatch::fill);
  for (RecordedBatch& batch : batches_)
    if (batch.first_fill && batch.fill > kFarLonger * usual) batch.fill = usual;
}

/// The slowest of the rates at which batches were filled, staged and taken: while the consumer
/// takes what was ready before, or fills its queue, the others tell how long that will last.
inline double RecordedBatches::period(std::size_t round) const {
  // Workers that began together come back together: whole rounds of them are steady.
  std::size_t apart = count() - std::clamp<std::size_t>(round, 1, count() / 4);
  if (apart >= round) apart -= apart % round;
  double period = 1;
  for (double RecordedBatch::*stamp :
       {&RecordedBatch::filled, &RecordedBatch::staged, &RecordedBatch::taken}) {
    double sum = 0;
    for (std::size_t k = 0; k + apart < count(); ++k)
      sum += batches_[k + apart].*stamp - batches_[k].*stamp;
    period =
        std::max(period, sum / static_cast<double>(apart) / static_cast<double>(count() - apart));
  }
  return period;
}

}  // namespace penstock::detail
