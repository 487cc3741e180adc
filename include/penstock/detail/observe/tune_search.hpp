// SPDX-License-Identifier: Apache-2.0
#pragma once

// TuneSearch: the cheapest settings with which a replay of recorded batches is about as fast as
// with the most of everything. A worker counts for more than any number of batches. Each of the
// settings is found by bisection, since a pipeline gets no slower if it has more of one.

#include <algorithm>
#include <cstddef>
#include <penstock/detail/observe/replay.hpp>
#include <penstock/detail/observe/source_memory.hpp>
#include <penstock/detail/observe/tune_settings.hpp>

namespace penstock::detail {

class TuneSearch {
 public:
  /// The others live longer. `doubt`: see SourceMemory::factor.
  TuneSearch(const Replay& replay, const SourceMemory& source, bool doubt)
      : replay_(replay), source_(source), doubt_(doubt) {
    for (const BatchCost& cost : replay.costs().all())
      fill_ += std::max(cost.fill + cost.handover, cost.source_work);
    fill_ /= static_cast<double>(std::max<std::size_t>(1, replay.costs().all().size()));
  }

  /// From one batch to the next in ns, as predicted. Few batches may be fewer than whole rounds of
  /// the workers: it is not less than these need on average.
  double period(const TuneSettings& settings) const {
    const double factor = source_.factor(settings.workers, doubt_);
    const ReplayResult replayed = replay_.run({.workers = static_cast<int>(settings.workers),
                                               .host_depth = settings.host_depth,
                                               .device_depth = settings.device_depth,
                                               .source = factor});
    return std::max(factor * fill_ / static_cast<double>(settings.workers),
                    static_cast<double>(replayed.period.count()));
  }

  TuneSettings cheapest(const TuneSettings& least, const TuneSettings& most) const {
    constexpr double kSlack = 0.01, kSlackOfDepths = 0.005;
    TuneSettings found = most;
    double limit = (1 + kSlack) * period(most);
    // The first value from `from` on that suffices, as the present one does.
    const auto lower = [&](std::size_t TuneSettings::*setting, std::size_t from) {
      std::size_t& value = found.*setting;
      std::size_t enough = value;
      while (from < enough) {
        value = from + (enough - from) / 2;
        if (period(found) <= limit)
          enough = value;
        else
          from = value + 1;
      }
      value = enough;
    };
    lower(&TuneSettings::workers, least.workers);
    limit = (1 + kSlackOfDepths) * period(found);
    lower(depth(), std::max(least.*depth(), least_depth(found.workers)));
    // An exact prediction leaves no headroom.
    found.*depth() = std::min(found.*depth() + 1, most.*depth());
    if (!replay_.shape().on_device()) lower(&TuneSettings::device_depth, least.device_depth);
    return found;
  }

 private:
  /// What the workers' batches need memory of.
  std::size_t TuneSettings::*depth() const {
    return replay_.shape().on_device() ? &TuneSettings::device_depth : &TuneSettings::host_depth;
  }
  /// Memory for each worker's batch and for one that is ready.
  std::size_t least_depth(std::size_t workers) const {
    return replay_.shape().source == SourceShape::per_sample ? 2 : workers + 1;
  }

  const Replay& replay_;
  const SourceMemory& source_;
  const bool doubt_;
  double fill_ = 0;  // a worker's mean time for a batch
};

}  // namespace penstock::detail
