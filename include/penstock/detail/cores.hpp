// SPDX-License-Identifier: Apache-2.0
#pragma once

// The default number of worker threads.

#include <penstock/detail/default_workers.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/detail/local_rank.hpp>
#include <penstock/detail/usable.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

PENSTOCK_INLINE int default_workers() {
  const int ranks = LocalRank::of_environment().size;
  if (ranks == 1)
    return workers_of(usable_cores(), 1);  // the common case, in which no file is
                                           // read
  const bool shared = !is_bound(Topology(), CpuMask::of_this_thread().cpus());
  return workers_of(usable_cores(), shared ? ranks : 1);
}

}  // namespace penstock::detail
