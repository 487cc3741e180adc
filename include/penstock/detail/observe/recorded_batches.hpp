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

/// The stamps of a batch in nanoseconds, and what is reconstructed of the device (by BatchCosts).
struct RecordedBatch {
  double opened = 0, filled = 0, staged = 0, asked = 0, taken = 0, released = 0;
  double fill = 0;  ///< time inside the source
  int stream = 0;
  double copied = 0;   ///< its copy was done
  double arrived = 0;  ///< and the transform behind it; on_device: the slot was written
  double begun = 0;    ///< the consumer's stream had the batch
  /// DeviceDurations: negative where nothing was measured.
  double source = -1, slot = -1, copy = -1, transform = -1, wait = -1, step = -1;
  bool first_fill = false;

  double worked() const { return begun + step; }
};

class RecordedBatches {
 public:
  static constexpr std::size_t kFewest = 8;
  static constexpr int kStreams = 16;  ///< streams that take in turn; more are told apart modulo it

  /// Allocates room for `most` batches.
  explicit RecordedBatches(std::size_t most) : batches_(most), medians_(most) {}

  /// Of the last of `batches` as many as there is room for; fewer than kFewest are of no use.
  void load(std::span<const FinishedBatch> batches, const PipelineShape& shape);

  std::size_t count() const { return count_; }
  RecordedBatch& operator[](std::size_t k) { return batches_[k]; }
  const RecordedBatch& operator[](std::size_t k) const { return batches_[k]; }
  /// Time on the consumer's thread from one call of next() to the following one.
  double turn(std::size_t k) const { return batches_[k + 1].asked - batches_[k].taken; }
  /// From one batch to the next, as the host's stamps tell, of so many workers.
  double period(std::size_t round) const;

 private:
  void keep_longest_stretch(std::size_t queues);
  void replace_first_fills();

  std::vector<RecordedBatch> batches_;
  std::size_t count_ = 0;
  Medians medians_;
};

/// In the order of delivery.
inline void RecordedBatches::load(std::span<const FinishedBatch> batches,
                                  const PipelineShape& shape) {
  if (batches.size() > batches_.size()) batches = batches.last(batches_.size());
  count_ = batches.size();
  if (count_ < kFewest) return;
  for (std::size_t k = 0; k < count_; ++k) {
    const auto& [number, times, device] = batches[k];
    const auto at = [](Ticks stamp) { return static_cast<double>(stamp); };
    RecordedBatch& batch = batches_[k];
    batch = {.opened = at(times.opened),
             .filled = at(times.filled),
             .staged = at(std::max(times.staged, times.filled)),
             .asked = at(times.asked),
             .taken = at(std::max(times.taken, times.asked)),
             .released = at(std::max({times.released, times.taken, times.asked})),
             .fill = at(times.source_time()),
             .stream = times.stream() % kStreams,
             .source = at(device.source),
             .slot = at(device.slot),
             .copy = at(device.copy),
             .transform = at(device.transform),
             .wait = at(device.wait),
             .step = at(device.step),
             .first_fill = times.first_of_worker()};
  }
  const auto end = batches_.begin() + static_cast<std::ptrdiff_t>(count_);
  std::sort(batches_.begin(), end,
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
  for (std::size_t k = 0; k + 1 < count_; ++k) turns += turn(k);
  const double step = medians_.of(
      count_ - 1, [&](std::size_t k) { return batches_[k + 1].asked - batches_[k].asked; });
  const double pause = std::max(
      {kShortest, kFarLonger * turns / static_cast<double>(count_ - 1), kManySteps * step});
  std::size_t begin = 0, first = 0, length = 0;
  for (std::size_t k = 0; k < count_; ++k) {
    if (k + 1 < count_ && turn(k) <= pause) continue;
    double& device = batches_[k].step;  // It may include the pause.
    if (k + 1 < count_ || device > pause) device = -1;
    if (k + 1 - begin > length) {
      first = begin;
      length = k + 1 - begin;
    }
    begin = k + 1;
  }
  const bool starts = first > 0 || batches_[0].first_fill;
  const std::size_t enough = length > kFewest ? length - kFewest : 0;
  const std::size_t start = starts ? std::min({queues, length / 3, enough}) : 0;
  const auto kept = batches_.begin() + static_cast<std::ptrdiff_t>(first + start);
  count_ = length - start;
  std::move(kept, kept + static_cast<std::ptrdiff_t>(count_), batches_.begin());
}

/// A worker's first batch, where it took far longer than the others: it opened files, or filled a
/// cache.
inline void RecordedBatches::replace_first_fills() {
  constexpr double kFarLonger = 4;
  const double usual = medians_.of(count_, [&](std::size_t k) { return batches_[k].fill; });
  for (std::size_t k = 0; k < count_; ++k)
    if (batches_[k].first_fill && batches_[k].fill > kFarLonger * usual) batches_[k].fill = usual;
}

/// The slowest of the rates at which batches were filled, staged and taken: while the consumer
/// takes what was ready before, or fills its queue, the others tell how long that will last.
inline double RecordedBatches::period(std::size_t round) const {
  // Workers that began together come back together: whole rounds of them are steady.
  std::size_t apart = count_ - std::clamp<std::size_t>(round, 1, count_ / 4);
  if (apart >= round) apart -= apart % round;
  double period = 1;
  for (double RecordedBatch::*stamp :
       {&RecordedBatch::filled, &RecordedBatch::staged, &RecordedBatch::taken}) {
    double sum = 0;
    for (std::size_t k = 0; k + apart < count_; ++k)
      sum += batches_[k + apart].*stamp - batches_[k].*stamp;
    period =
        std::max(period, sum / static_cast<double>(apart) / static_cast<double>(count_ - apart));
  }
  return period;
}

}  // namespace penstock::detail
