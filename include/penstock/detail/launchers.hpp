// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the ranks that launchers set in the environment. Variables are read through a function,
// since tests have their own environments and penstock::trace reads the ranks without the library.

#include <cstdint>
#include <functional>
#include <optional>
#include <penstock/detail/words.hpp>
#include <penstock/ranks.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Returns the value of a variable, or null.
using Lookup = std::function<const char*(const char* name)>;

[[noreturn]] inline void refuse_ranks(const std::string& why) {
  throw std::invalid_argument("Ranks: " + why);
}

class Environment {
 public:
  explicit Environment(const Lookup& lookup) : lookup_(lookup) {}

  std::string text(const char* name) const {
    const char* const value = lookup_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return !text(name).empty(); }

  /// Returns a text such as "RANK=3" for messages.
  std::string shown(const char* name) const {
    std::string all = name;
    return has(name) ? all.append("=").append(text(name)) : all.append(" is not set");
  }

  /// Returns the value of the variable. Throws unless it is a number of at least 0.
  int number(const char* name) const {
    const auto value = read_number<int>(text(name));
    if (!value || *value < 0) refuse_ranks(shown(name) + " is no number of 0 or more");
    return *value;
  }

 private:
  const Lookup& lookup_;
};

/// The variables of one launcher.
struct Launcher {
  const char* name;
  const char *rank, *size, *local_rank, *local_size;
};

inline constexpr Launcher by_hand{"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE"};
inline constexpr Launcher open_mpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
inline constexpr Launcher hydra{"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                "MPI_LOCALNRANKS"};

inline std::string shown(const Environment& environment, const Launcher& launcher) {
  std::string all = environment.shown(launcher.rank);
  for (const char* name : {launcher.size, launcher.local_rank, launcher.local_size})
    if (name != nullptr) (all += ", ") += environment.shown(name);
  return all;
}

/// Reads these variables. A member whose variable does not exist or is not set keeps the value for
/// a single rank.
inline Ranks numbers_of(const Environment& environment, const Launcher& launcher) {
  Ranks ranks{.rank = environment.number(launcher.rank),
              .world_size = environment.number(launcher.size),
              .source = launcher.name};
  for (const auto& [name, number] : {std::pair(launcher.local_rank, &ranks.local_rank),
                                     std::pair(launcher.local_size, &ranks.local_size)})
    if (name != nullptr && environment.has(name)) *number = environment.number(name);
  return ranks;
}

/// Throws unless 0 <= rank < size, for the job and for the machine.
inline Ranks checked(const Ranks& ranks, const std::string& variables) {
  const bool good = ranks.rank < ranks.world_size && ranks.local_rank < ranks.local_size &&
                    ranks.local_size <= ranks.world_size;
  if (!good) refuse_ranks("these contradict each other: " + variables);
  return ranks;
}

/// Reads the variables of a launcher. Returns nullopt if none of them is set. Throws if some of
/// them are missing, unless there is only one rank.
inline std::optional<Ranks> read_launcher(const Environment& environment,
                                          const Launcher& launcher) {
  bool any = false, all = true;
  for (const char* name :
       {launcher.rank, launcher.size, launcher.local_rank, launcher.local_size}) {
    any = any || environment.has(name);
    all = all && environment.has(name);
  }
  if (!any) return {};
  const bool alone = environment.has(launcher.rank) && environment.has(launcher.size) &&
                     environment.number(launcher.size) == 1;
  if (!all && !alone)
    refuse_ranks("some are missing: " + shown(environment, launcher) +
                 "; set all of them, or none");
  return checked(numbers_of(environment, launcher), shown(environment, launcher));
}

/// Returns the first host of a list such as "gpu[03-05,9],login" or "a-[1-2]-b[3-4]".
inline std::string first_host(std::string_view list) {
  std::string host;
  for (bool within = false, taken = false; const char c : list) {
    if (c == '[') {
      within = true;
      taken = false;
    } else if (c == ']') {
      within = false;
    } else if (within) {
      taken = taken || c == ',' || c == '-';
      if (!taken) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  return host;
}

/// Returns the tasks of one node in a list such as "4(x2),3": 4 on nodes 0 and 1, and 3 on node 2.
inline std::optional<int> tasks_of_node(std::string_view list, int node) {
  while (true) {
    const auto tasks = take_number<int>(list);
    const bool repeated = take(list, "(x");
    const std::optional<int> nodes = repeated ? take_number<int>(list) : 1;
    if (!tasks || !nodes || (repeated && !take(list, ")"))) return {};
    if (node < *nodes) return tasks;
    node -= *nodes;
    if (!take(list, ",")) return {};
  }
}

/// Whether srun started this process in a step. Slurm uses the step numbers from 0xfffffff0 on for
/// other purposes: a batch script, the shell of salloc, and processes from outside.
inline bool in_slurm_step(const Environment& environment) {
  const auto step = read_number<std::uint64_t>(environment.text("SLURM_STEP_ID"));
  return step && *step < 0xfffffff0 && environment.has("SLURM_PROCID");
}

inline std::optional<Ranks> read_slurm(const Environment& environment) {
  if (!in_slurm_step(environment)) return {};
  // srun --preserve-env leaves the job's number in SLURM_NTASKS.
  const char* const size =
      environment.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const Launcher slurm{"Slurm", "SLURM_PROCID", size, "SLURM_LOCALID", nullptr};
  const char* const tasks = environment.has("SLURM_STEP_TASKS_PER_NODE")
                                ? "SLURM_STEP_TASKS_PER_NODE"
                                : "SLURM_TASKS_PER_NODE";
  for (const char* name : {size, "SLURM_LOCALID", "SLURM_NODEID", tasks})
    if (!environment.has(name))
      refuse_ranks(environment.shown("SLURM_PROCID") + ", but " + environment.shown(name) +
                   "; srun sets both");
  Ranks ranks = numbers_of(environment, slurm);
  const std::string place = environment.shown("SLURM_NODEID") + ", " + environment.shown(tasks);
  const auto here = tasks_of_node(environment.text(tasks), environment.number("SLURM_NODEID"));
  if (!here) refuse_ranks("the number of tasks on this machine is not known: " + place);
  ranks.local_size = *here;
  ranks.job = environment.text("SLURM_JOB_ID") + "." + environment.text("SLURM_STEP_ID");
  ranks.host = first_host(environment.text("SLURM_STEP_NODELIST"));
  return checked(ranks, shown(environment, slurm) + ", " + place);
}

/// Reads the variables of Open MPI, Hydra or Slurm.
inline std::optional<Ranks> read_mpi_or_slurm(const Environment& environment) {
  if (auto ranks = read_launcher(environment, open_mpi)) {
    ranks->job = environment.text("PMIX_NAMESPACE");
    if (ranks->job.empty()) ranks->job = environment.text("OMPI_MCA_ess_base_jobid");
    ranks->host = first_host(environment.text("SLURM_JOB_NODELIST"));
    return ranks;
  }
  // PMI_RANK without MPI_LOCALRANKID was set by srun with --mpi=pmi2.
  if (environment.has(hydra.local_rank) || !in_slurm_step(environment)) {
    if (auto ranks = read_launcher(environment, hydra)) {
      ranks->host = first_host(environment.text("SLURM_JOB_NODELIST"));
      return ranks;
    }
  }
  return read_slurm(environment);
}

/// Reads the variables of an indexed job of Kubernetes with one rank in each pod. If LOCAL_RANK is
/// set, a pod has several ranks, and the result is nullopt.
inline std::optional<Ranks> read_kubernetes(const Environment& environment) {
  const Launcher pods{"Kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr};
  if (!environment.has(pods.rank) || environment.has("LOCAL_RANK")) return {};
  if (!environment.has(pods.size))
    refuse_ranks(shown(environment, pods) +
                 "; set it to the job's completions (or, for pods that work alone, RANK=0, "
                 "WORLD_SIZE=1 and LOCAL_RANK=0)");
  const Ranks ranks = numbers_of(environment, pods);
  if (environment.has("RANK") && environment.number("RANK") != ranks.rank)
    refuse_ranks("these contradict each other: " + environment.shown("RANK") + ", " +
                 environment.shown(pods.rank));
  return checked(ranks, shown(environment, pods));
}

/// Throws if variables that are set by hand contradict those of the launcher.
inline void check_agreement(const Environment& environment, const Ranks& ranks) {
  const auto check = [&](const char* name, int value, const char* meaning) {
    if (environment.has(name) && environment.number(name) != value)
      refuse_ranks(environment.shown(name) + ", but " + ranks.source + " says that " + meaning +
                   " is " + std::to_string(value) + "; unset what is not meant");
  };
  check(by_hand.rank, ranks.rank, "the rank");
  check(by_hand.size, ranks.world_size, "the number of ranks");
  check(by_hand.local_rank, ranks.local_rank, "the rank on this machine");
  check(by_hand.local_size, ranks.local_size, "the number of ranks on this machine");
}

inline std::optional<Ranks> read_ranks_alone(const Environment& environment) {
  const bool torchrun = environment.has("TORCHELASTIC_RUN_ID");
  const auto outer = torchrun ? std::nullopt : read_mpi_or_slurm(environment);
  // A launcher of one rank is ignored, since it may have started a shell: `srun -n 1 --pty bash`.
  if (outer && outer->world_size > 1) {
    check_agreement(environment, *outer);
    return outer;
  }
  if (!torchrun)
    if (auto ranks = read_kubernetes(environment)) return ranks;
  if (auto ranks = read_launcher(environment, by_hand)) {
    if (torchrun) ranks->source = "torchrun";
    return ranks;
  }
  if (torchrun)
    refuse_ranks(environment.shown("TORCHELASTIC_RUN_ID") + ", but " + shown(environment, by_hand) +
                 "; torchrun sets all of them");
  if (!outer && environment.has("PMIX_RANK"))
    refuse_ranks(environment.shown("PMIX_RANK") +
                 ", and no variable says how many ranks there are; set RANK, WORLD_SIZE, "
                 "LOCAL_RANK and LOCAL_WORLD_SIZE, or start the job with mpirun");
  return outer;
}

inline Ranks read_ranks(const Lookup& lookup) {
  const Environment environment(lookup);
  Ranks ranks = read_ranks_alone(environment).value_or(Ranks{});
  if (ranks.world_size == 1) return ranks;
  const std::string address = environment.text("MASTER_ADDR");
  if (!address.empty()) ranks.host = address;
  if (environment.has("MASTER_PORT")) {
    ranks.port = environment.number("MASTER_PORT");
    if (ranks.port < 1 || ranks.port > 65535)
      refuse_ranks(environment.shown("MASTER_PORT") + " is no port");
    if (ranks.job.empty()) ranks.job = address + ":" + std::to_string(ranks.port);
    if (ranks.source == "torchrun") {
      ranks.job += "/" + environment.text("TORCHELASTIC_RUN_ID");
      ++ranks.port;
    }
  }
  return ranks;
}

}  // namespace penstock::detail
