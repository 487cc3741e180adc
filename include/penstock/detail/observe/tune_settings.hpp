// SPDX-License-Identifier: Apache-2.0
#pragma once

// TuneSettings: what a Tuner may change of a pipeline. WorkerTimes: what it is told of the workers.

#include <array>
#include <cstddef>

namespace penstock::detail {

struct TuneSettings {
  std::size_t workers = 0;     ///< that run
  std::size_t host_depth = 0;  ///< blocks of pinned memory in use; 0: the source is on_device
  std::size_t device_depth = 0;
  /// Batches that the workers have memory for.
  std::size_t depth() const { return host_depth == 0 ? device_depth : host_depth; }
  friend bool operator==(const TuneSettings&, const TuneSettings&) = default;
};

/// The settings are in the order of TuneKnob.
inline constexpr std::array kKnobs{&TuneSettings::workers, &TuneSettings::host_depth,
                                   &TuneSettings::device_depth};

/// Sums of all workers since they were started, in ns.
struct WorkerTimes {
  double busy = 0;  ///< inside the source
  double cpu = 0;   ///< of it, on a core
};

}  // namespace penstock::detail
