// SPDX-License-Identifier: Apache-2.0
#pragma once

// LocalRank: what the ranks on one machine have to know to share its cores.

#include <algorithm>
#include <penstock/detail/cpus.hpp>
#include <penstock/detail/topology.hpp>
#include <penstock/ranks.hpp>
#include <stdexcept>

namespace penstock::detail {

/// Which of the ranks on this machine this process is.
struct LocalRank {
  int rank = 0, size = 1;

  /// Variables that contradict each other tell nothing; who asks for Ranks gets the error.
  static LocalRank of_environment() {
    try {
      const Ranks ranks = Ranks::from_environment();
      return {ranks.local_rank, ranks.local_size};
    } catch (const std::invalid_argument&) {
      return {};
    }
  }
};

/// The default. One core is left for the thread that feeds the device; `ranks` share the cores.
inline int workers_of(int cores, int ranks) {
  return std::max(1, cores / ranks - 1);
}

/// A launcher, or the user, has kept the thread that may run on `own` from some cores.
inline bool is_bound(const Topology& topology, const Cpus& own) {
  return !without(topology.unbound(), own).empty();
}

}  // namespace penstock::detail
