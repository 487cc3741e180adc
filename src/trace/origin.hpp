// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who recorded: this process and its machine, as a Timeline says it.

#include <penstock/trace/timeline.hpp>

namespace penstock::trace::detail {

/// Without what a backend knows. `begin`: of recording.
Origin this_origin(Time begin);

/// Of RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK, whichever is set first; -1: none is.
int this_rank();

/// Name of this machine.
std::string this_host();

}  // namespace penstock::trace::detail
