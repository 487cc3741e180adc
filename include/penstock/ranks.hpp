// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ranks: which of a job's processes this one is. It is read from the variables that the launcher
// sets, so that the same program runs alone, under torchrun, srun, mpirun and in Kubernetes.
//
//   const auto ranks = penstock::Ranks::from_environment();
//   cudaSetDevice(ranks.local_rank);
//   penstock::Sampler sampler{{.samples = records.size(), .batch_size = 256}, ranks};
//
// | launcher             | variables                                                              |
// |----------------------|------------------------------------------------------------------------|
// | torchrun             | RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RUN_ID    |
// | the same, by hand    | RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE                         |
// | mpirun of Open MPI   | OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMIX_NAMESPACE  |
// | mpiexec of Hydra     | PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS (MPICH, Intel)    |
// | srun                 | SLURM_PROCID, SLURM_STEP_NUM_TASKS (else SLURM_NTASKS), SLURM_LOCALID, |
// |                      | SLURM_STEP_TASKS_PER_NODE, SLURM_NODEID, SLURM_STEP_NODELIST           |
// | Kubernetes           | JOB_COMPLETION_INDEX; the pod's template says WORLD_SIZE, MASTER_ADDR  |
//
// If launchers are nested, the inner one counts: torchrun under srun, mpirun in a job of Slurm. A
// batch script of Slurm is no rank, nor is the shell of salloc: SLURM_PROCID and SLURM_NTASKS are
// set there too, but SLURM_STEP_ID is not, or has one of Slurm's own numbers.

#include <penstock/detail/inline.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI {

/// The place of a process in its job.
struct Ranks {
  int rank = 0, world_size = 1;        ///< number of this process in the job, of how many
  int local_rank = 0, local_size = 1;  ///< the same on this machine: the device to use
  /// "torchrun", "environment" (the same variables without torchrun), "Open MPI", "Hydra", "Slurm"
  /// or "Kubernetes"; empty: no launcher, one rank.
  std::string source = {};

  // These are for ranks that have to find each other. Empty or 0: unknown.
  std::string host = {};  ///< machine of rank 0: MASTER_ADDR, else the first one of Slurm's list
  /// The first port that rank 0 may use there: MASTER_PORT, and the one after it where torchrun's
  /// agent holds that one.
  int port = 0;
  std::string job = {};  ///< a text that is the same for all ranks, and another for another job

  bool operator==(const Ranks&) const = default;

  /// Reads the variables of the launcher; without one, this is rank 0 of 1. Throws
  /// std::invalid_argument that names the variables, with their values, when some of a launcher's
  /// are missing, are no numbers, or contradict each other. An empty variable counts as not set. No
  /// other thread may change the environment meanwhile.
  static Ranks from_environment();
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/order/ranks.hpp>
#endif
