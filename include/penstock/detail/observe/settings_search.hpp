// SPDX-License-Identifier: Apache-2.0
#pragma once

// SettingsSearch: finds the cheapest settings with which a replay of recorded batches is about as
// fast as with the largest ones. A worker is considered more expensive than any number of batches.
// Each setting is found by bisection, since a larger setting never makes a pipeline slower.

#include <algorithm>
#include <cstddef>
#include <penstock/detail/observe/replay.hpp>
#include <penstock/detail/observe/source_scaling.hpp>
#include <penstock/detail/observe/tune_settings.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class SettingsSearch {
 public:
  /// `replay` must outlive this object.
  SettingsSearch(const Replay& replay, const SourceScaling& source)
      : replay_(replay), source_(source) {}

  /// Returns the predicted time from one batch to the next, in ns. The replayed batches may be
  /// fewer than whole rounds of the workers, so the result is at least the mean time of the source
  /// divided by the number of workers.
  double period(const TuneSettings& settings) const {
    const double factor = source_.factor(settings.workers);
    return std::max(factor * source_.time() / static_cast<double>(settings.workers),
                    replay_.period({settings, factor}));
  }

  /// Returns the cheapest settings between `least` and `most` that are about as fast as `most`.
  TuneSettings cheapest(const TuneSettings& least, const TuneSettings& most) const {
    constexpr double kSlack = 1.01;
    TuneSettings found = most;
    const double limit = kSlack * period(most);
    // Sets `setting` to the smallest value from `from` on that suffices. The present value
    // suffices.
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
    const PipelineShape& shape = replay_.shape();
    if (!shape.on_device) lower(&TuneSettings::device_depth, least.device_depth);
    lower(&TuneSettings::workers, least.workers);
    lower(shape.worker_depth(), std::max(least.*shape.worker_depth(), shape.following(found)));
    return found;
  }

 private:
  const Replay& replay_;
  const SourceScaling source_;
};

}  // namespace penstock::detail
