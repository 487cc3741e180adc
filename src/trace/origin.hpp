// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who recorded: this process and its machine, as a Timeline says it.

#include <penstock/trace/timeline.hpp>

namespace penstock::trace::detail {

/// Without what a backend knows. `begin`: of recording.
Origin this_origin(Time begin);

/// Which part of a run a timeline is that was to keep the time `last`, of a recording that began at
/// `began`, and what of it is cut.
std::string excerpt(const Timeline& timeline, Time began, Time last);

struct Place {
  int rank = -1;       ///< -1: no launcher says it
  int world_size = 0;  ///< 0: not known
};

/// As Ranks has them. Where the variables contradict each other, or some are missing, the rank is
/// that of RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK or JOB_COMPLETION_INDEX, whichever is set
/// first, and the size is that of the same launcher, if it is set and larger: a recording is made
/// all the same.
Place this_place();

/// Name of this machine.
std::string this_host();

}  // namespace penstock::trace::detail
