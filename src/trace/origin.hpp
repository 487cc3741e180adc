// SPDX-License-Identifier: Apache-2.0
#pragma once

// Describes the process and the machine that recorded a Timeline.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns the origin without the backend's part. `begin` is the begin of recording.
Origin this_origin(Time begin);

/// Describes which part of a run a timeline covers that was to keep the time `last`, in a recording
/// that began at `began`, and what is missing.
std::string excerpt(const Timeline& timeline, Time began, Time last);

struct Place {
  int rank = -1;       ///< -1: no launcher gives it
  int world_size = 0;  ///< 0: not known
};

/// Reads the place like Ranks. If the variables contradict each other, or some are missing, a
/// recording is made anyway: the rank is that of RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK or
/// JOB_COMPLETION_INDEX, whichever is set first, and the size is that of the same launcher, if it
/// is set and larger.
Place this_place();

/// Returns the name of this machine.
std::string this_host();

}  // namespace penstock::trace::detail
