// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalRank: the data that the ranks on one machine need to share its cores.

#include <algorithm>
#include <penstock/detail/cpus.hpp>
#include <penstock/detail/topology.hpp>
#include <penstock/ranks.hpp>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The number of this process among the ranks on this machine.
struct LocalRank {
  int rank = 0, size = 1;

  /// Returns a single rank if the variables contradict each other; Ranks::from_environment()
  /// reports that error.
  static LocalRank of_environment() {
    try {
      const Ranks ranks = Ranks::from_environment();
      return {ranks.local_rank, ranks.local_size};
    } catch (const std::invalid_argument&) {
      return {};
    }
  }
};

/// Returns the default number of workers for each of `ranks` ranks that share the cores. One core
/// is left for the thread that feeds the device.
inline int workers_of(int cores, int ranks) {
  return std::max(1, cores / ranks - 1);
}

/// Whether a launcher or the user has bound this thread, which may run on `own`, to fewer cores
/// than there are.
inline bool is_bound(const Topology& topology, const Cpus& own) {
  return !without(topology.unbound(), own).empty();
}

}  // namespace penstock::detail
