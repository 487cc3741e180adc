// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the ranks of a job find each other, over TCP and without MPI: rank 0 listens, the others
// connect, and all go on once everybody is there.
//
// Rank 0 listens at the first of kPorts ports, from Ranks::port on, that is free; without a port,
// from one on that follows from the job's name. The others try these ports in turn until one
// answers as rank 0 of their job, and proves it by the job's secret. So two jobs on one machine do
// not disturb each other, and a port that somebody else has (as torchrun's agent has MASTER_PORT,
// for its own store) does no harm.
//
// NCCL_COMM_ID=host:port would make NCCL's id without any exchange. But then a rank that does not
// come is waited for within NCCL, which does not say which one it is; another job's rank is not
// refused; and a rank that dies later is noticed by nobody. These connections stay open for that
// (control.hpp), and the id goes over them.

#include <chrono>
#include <penstock/ranks.hpp>
#include <string>
#include <vector>

#include "connection.hpp"
#include "job_secret.hpp"

namespace resnet {

struct Meeting {
  /// By channel. On rank 0 by rank, its own one empty; else of rank 0 alone.
  std::vector<std::vector<Connection>> connections;
  std::vector<std::string> hosts;  ///< by rank; on rank 0
};

inline constexpr int kPorts = 16;
/// The ports of a job, as above.
std::vector<int> ports_of(const penstock::Ranks& ranks);

/// Of two ranks or more. Blocks until all are there; throws RankError when some are not, within
/// `timeout`: on rank 0 it names them, on the others too, or rank 0 itself. std::invalid_argument
/// where nothing says on which machine rank 0 is, and where there are several machines and no
/// secret. Rank 0 and each other rank prove to one another that they have the secret; who has not
/// is told nothing of the job.
Meeting meet(const penstock::Ranks& ranks, const JobSecret& secret,
             std::chrono::milliseconds timeout, int channels);

/// "2, 5 and 7".
std::string listed(const std::vector<int>& ranks);
/// "60 s", "1.5 s".
std::string shown(std::chrono::milliseconds time);

}  // namespace resnet
