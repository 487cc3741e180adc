// SPDX-License-Identifier: Apache-2.0
#pragma once

// TuneSettings: the settings of a pipeline that a Tuner may change. WorkerTimes: its input about
// the workers.

#include <array>
#include <cstddef>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

struct TuneSettings {
  std::size_t workers = 0;     ///< workers that run
  std::size_t host_depth = 0;  ///< blocks of pinned memory in use; 0: the source is on_device
  std::size_t device_depth = 0;
  /// The number of batches for which the workers have memory.
  std::size_t worker_depth() const { return host_depth == 0 ? device_depth : host_depth; }
  friend bool operator==(const TuneSettings&, const TuneSettings&) = default;
};

/// The settings are in the order of TuneKnob.
inline constexpr std::array kKnobs{&TuneSettings::workers, &TuneSettings::host_depth,
                                   &TuneSettings::device_depth};

/// Sums over all workers since they were started, in ns.
struct WorkerTimes {
  double busy = 0;  ///< time inside the source
  double cpu = 0;   ///< the part of it on a core
};

}  // namespace penstock::detail
