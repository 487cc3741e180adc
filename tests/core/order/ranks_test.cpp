// SPDX-License-Identifier: Apache-2.0

#include <map>
#include <penstock/detail/launchers.hpp>
#include <penstock/ranks.hpp>
#include <penstock/sampler.hpp>
#include <penstock/stats_export.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock {

std::ostream& operator<<(std::ostream& out, const Ranks& ranks) {
  return out << ranks.rank << " of " << ranks.world_size << ", " << ranks.local_rank << " of "
             << ranks.local_size << " here, by " << ranks.source << ", " << ranks.host << ":"
             << ranks.port << ", job " << ranks.job;
}

namespace {

using test::Mentions;
using test::thrown;
using Variables = std::map<std::string, std::string>;

Ranks read(const Variables& variables) {
  return detail::read_ranks([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const Variables& variables) {
  return thrown<std::invalid_argument>([&] { static_cast<void>(read(variables)); });
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// ---- What launchers set ------------------------------------------------------------------------

const Variables torchrun{{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"GROUP_RANK", "1"},
                         {"GROUP_WORLD_SIZE", "2"},
                         {"ROLE_RANK", "5"},
                         {"ROLE_WORLD_SIZE", "8"},
                         {"ROLE_NAME", "default"},
                         {"MASTER_ADDR", "node1"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"},
                         {"TORCHELASTIC_MAX_RESTARTS", "3"},
                         {"TORCHELASTIC_RUN_ID", "train-7"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

/// srun -N 3 --ntasks-per-node=4 -n 11, the second task of the second node.
const Variables srun{{"SLURM_JOB_ID", "4711"},
                     {"SLURM_STEP_ID", "2"},
                     {"SLURM_PROCID", "5"},
                     {"SLURM_LOCALID", "1"},
                     {"SLURM_NODEID", "1"},
                     {"SLURM_NTASKS", "11"},
                     {"SLURM_NPROCS", "11"},
                     {"SLURM_STEP_NUM_TASKS", "11"},
                     {"SLURM_STEP_NUM_NODES", "3"},
                     {"SLURM_TASKS_PER_NODE", "4(x2),3"},
                     {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                     {"SLURM_JOB_NODELIST", "gpu[07-09,12]"},
                     {"SLURM_STEP_NODELIST", "gpu[07-09]"},
                     {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.2"}};

/// What an sbatch script sees of `#SBATCH -N 2 --ntasks-per-node=4`.
const Variables sbatch{{"SLURM_JOB_ID", "4711"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "0"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_NPROCS", "8"},
                       {"SLURM_TASKS_PER_NODE", "4(x2)"},
                       {"SLURM_JOB_NODELIST", "gpu[07-08]"},
                       {"SLURM_GTIDS", "0"}};

const Variables open_mpi_4{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                           {"OMPI_UNIVERSE_SIZE", "2"},
                           {"OMPI_MCA_ess_base_jobid", "3418161153"},
                           {"OMPI_MCA_ess_base_vpid", "1"},
                           {"PMIX_NAMESPACE", "3418161153"},
                           {"PMIX_RANK", "1"}};

const Variables open_mpi_5{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "0"},
                           {"PMIX_NAMESPACE", "prterun-node1-812@1"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_HOSTNAME", "node2"}};

const Variables hydra{{"PMI_RANK", "2"},
                      {"PMI_SIZE", "4"},
                      {"PMI_FD", "9"},
                      {"MPI_LOCALRANKID", "0"},
                      {"MPI_LOCALNRANKS", "2"}};

const Variables kubernetes{{"JOB_COMPLETION_INDEX", "3"},
                           {"WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "train-0.train"},
                           {"MASTER_PORT", "29400"},
                           {"HOSTNAME", "train-3"}};

// ---- What they set on one machine, as recorded there: the second of two ranks

/// PyTorch 2.15.0: torchrun --no-python --standalone --nproc-per-node 2.
const Variables torchrun_2_15{{"GROUP_RANK", "0"},
                              {"GROUP_WORLD_SIZE", "1"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "localhost"},
                              {"MASTER_PORT", "38777"},
                              {"RANK", "1"},
                              {"ROLE_NAME", "default"},
                              {"ROLE_RANK", "1"},
                              {"ROLE_WORLD_SIZE", "2"},
                              {"TORCHELASTIC_MAX_RESTARTS", "0"},
                              {"TORCHELASTIC_RESTART_COUNT", "0"},
                              {"TORCHELASTIC_RUN_ID", "8218be7c"},
                              {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                              {"WORLD_SIZE", "2"}};

/// Slurm 22.05.8: srun -n 2.
const Variables srun_22_05{{"SLURMD_NODENAME", "node1"},
                           {"SLURM_GTIDS", "0,1"},
                           {"SLURM_JOBID", "1"},
                           {"SLURM_JOB_ID", "1"},
                           {"SLURM_JOB_NODELIST", "node1"},
                           {"SLURM_JOB_NUM_NODES", "1"},
                           {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_NNODES", "1"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_NODELIST", "node1"},
                           {"SLURM_NPROCS", "2"},
                           {"SLURM_NTASKS", "2"},
                           {"SLURM_PROCID", "1"},
                           {"SLURM_STEPID", "0"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NODELIST", "node1"},
                           {"SLURM_STEP_NUM_NODES", "1"},
                           {"SLURM_STEP_NUM_TASKS", "2"},
                           {"SLURM_STEP_TASKS_PER_NODE", "2"},
                           {"SLURM_TASKS_PER_NODE", "2"}};

/// Open MPI 4.1.4: mpirun --oversubscribe -np 2.
const Variables open_mpi_4_1{{"OMPI_APP_CTX_NUM_PROCS", "2"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                             {"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"OMPI_FIRST_RANKS", "0"},
                             {"OMPI_MCA_ess", "^singleton"},
                             {"OMPI_MCA_ess_base_jobid", "932708353"},
                             {"OMPI_MCA_ess_base_vpid", "1"},
                             {"OMPI_NUM_APP_CTX", "1"},
                             {"OMPI_UNIVERSE_SIZE", "2"},
                             {"PMIX_HOSTNAME", "node1"},
                             {"PMIX_ID", "932708353.1"},
                             {"PMIX_NAMESPACE", "932708353"},
                             {"PMIX_RANK", "1"}};

/// Hydra of MPICH 4.0.2: mpiexec -n 2.
const Variables hydra_4_0{{"GFORTRAN_UNBUFFERED_PRECONNECTED", "y"},
                          {"HYDI_CONTROL_FD", "7"},
                          {"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "node1"},
                          {"MPI_LOCALNRANKS", "2"},
                          {"MPI_LOCALRANKID", "1"},
                          {"PMI_FD", "8"},
                          {"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"}};

TEST_CASE("Ranks: as launchers were seen to set them", "[ranks]") {
  CHECK(read(torchrun_2_15) ==
        Ranks{1, 2, 1, 2, "torchrun", "localhost", 38778, "localhost:38777/8218be7c"});
  CHECK(read(srun_22_05) == Ranks{1, 2, 1, 2, "Slurm", "node1", 0, "1.0"});
  CHECK(read(open_mpi_4_1) == Ranks{1, 2, 1, 2, "Open MPI", "", 0, "932708353"});
  CHECK(read(hydra_4_0) == Ranks{1, 2, 1, 2, "Hydra"});
}

TEST_CASE("Ranks: without a launcher there is one rank", "[ranks]") {
  CHECK(read({}) == Ranks{});
  CHECK(read({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}) == Ranks{});
  CHECK(read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"JOB_COMPLETION_INDEX", ""}}) == Ranks{});
}

TEST_CASE("Ranks: torchrun's, whose agent holds MASTER_PORT", "[ranks]") {
  CHECK(read(torchrun) == Ranks{5, 8, 1, 4, "torchrun", "node1", 29501, "node1:29500/train-7"});
}

TEST_CASE("Ranks: torchrun is within srun, mpirun and Kubernetes", "[ranks]") {
  const Ranks ranks = read(torchrun);
  CHECK(read(with(srun, torchrun)) == ranks);
  CHECK(read(with(open_mpi_5, torchrun)) == ranks);
  CHECK(read(with(kubernetes, torchrun)) == ranks);
}

TEST_CASE("Ranks: the same variables by hand", "[ranks]") {
  const Variables variables{{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "node1"},
                            {"MASTER_PORT", "29500"}};
  const Ranks ranks{1, 2, 1, 2, "environment", "node1", 29500, "node1:29500"};
  CHECK(read(variables) == ranks);
  CHECK(read(with(sbatch, variables)) == ranks);
  CHECK(read(with(kubernetes, variables)) == ranks);  // several in a pod
  CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}) == Ranks{0, 1, 0, 1, "environment"});
}

TEST_CASE("Ranks: srun's", "[ranks]") {
  const Ranks ranks{5, 11, 1, 4, "Slurm", "gpu07", 0, "4711.2"};
  CHECK(read(srun) == ranks);
  CHECK(read(without(srun, "SLURM_STEP_NUM_TASKS")) == ranks);
  CHECK(read(without(srun, "SLURM_STEP_TASKS_PER_NODE")) == ranks);
  CHECK(read(with(srun, {{"SLURM_NTASKS", "40"}})) == ranks);  // srun --preserve-env
  CHECK(read(with(srun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "11"}, {"PMI_FD", "3"}})) == ranks);
  CHECK(read(with(srun, {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.4711.2"}})) == ranks);
  Ranks last = ranks;
  last.rank = 10;
  last.local_rank = 2;
  last.local_size = 3;
  CHECK(read(with(srun, {{"SLURM_PROCID", "10"}, {"SLURM_LOCALID", "2"}, {"SLURM_NODEID", "2"}})) ==
        last);
}

TEST_CASE("Ranks: a batch script of Slurm is one process, and so is salloc's shell", "[ranks]") {
  CHECK(read(sbatch) == Ranks{});
  const std::string own_step = GENERATE("4294967290", "4294967291", "4294967292");
  CHECK(read(with(srun, {{"SLURM_STEP_ID", own_step}})) == Ranks{});
  CHECK(read({{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "8"}}) == Ranks{});
}

TEST_CASE("Ranks: within `srun -n 1` another launcher counts", "[ranks]") {
  const Variables shell = with(srun, {{"SLURM_PROCID", "0"},
                                      {"SLURM_LOCALID", "0"},
                                      {"SLURM_NODEID", "0"},
                                      {"SLURM_STEP_NUM_TASKS", "1"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  CHECK(read(shell) == Ranks{0, 1, 0, 1, "Slurm", "gpu07", 0, "4711.2"});
  const Variables hand{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  CHECK(read(with(shell, hand)) == Ranks{1, 2, 1, 2, "environment"});
}

TEST_CASE("Ranks: Open MPI's, 4 and 5", "[ranks]") {
  CHECK(read(open_mpi_4) == Ranks{1, 2, 1, 2, "Open MPI", "", 0, "3418161153"});
  CHECK(read(without(open_mpi_4, "PMIX_NAMESPACE")) == read(open_mpi_4));
  CHECK(read(open_mpi_5) == Ranks{1, 2, 0, 1, "Open MPI", "", 0, "prterun-node1-812@1"});
  // mpirun starts its daemons with srun, one for each node.
  const Variables daemon = with(srun, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}});
  CHECK(read(with(daemon, open_mpi_5)) ==
        Ranks{1, 2, 0, 1, "Open MPI", "gpu07", 0, "prterun-node1-812@1"});
  CHECK(read(with(open_mpi_5, {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}})) ==
        Ranks{1, 2, 0, 1, "Open MPI", "node1", 29500, "prterun-node1-812@1"});
}

TEST_CASE("Ranks: Hydra's", "[ranks]") {
  CHECK(read(hydra) == Ranks{2, 4, 0, 2, "Hydra"});
  CHECK(read(with(srun, hydra)) == Ranks{2, 4, 0, 2, "Hydra", "gpu07"});
}

TEST_CASE("Ranks: Kubernetes', an indexed job", "[ranks]") {
  const Ranks ranks{3, 4, 0, 1, "Kubernetes", "train-0.train", 29400, "train-0.train:29400"};
  CHECK(read(kubernetes) == ranks);
  CHECK(read(with(kubernetes, {{"RANK", "3"}})) == ranks);
  CHECK(read({{"JOB_COMPLETION_INDEX", "3"},
              {"RANK", "0"},
              {"WORLD_SIZE", "1"},
              {"LOCAL_RANK", "0"}}) == Ranks{0, 1, 0, 1, "environment"});
}

// ---- What is refused ---------------------------------------------------------------------------

TEST_CASE("Ranks: half of a launcher's variables is an error that names them", "[ranks]") {
  const auto check = [](const Variables& variables, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      CAPTURE(name);
      CHECK_THAT(refusal(without(variables, name)),
                 Mentions("Ranks: ") && Mentions(name + " is not set"));
    }
  };
  check(torchrun, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  check(without(torchrun, "TORCHELASTIC_RUN_ID"),
        {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  check(open_mpi_4, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                     "OMPI_COMM_WORLD_LOCAL_SIZE"});
  check(hydra, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  check(srun, {"SLURM_LOCALID", "SLURM_NODEID"});
  check(without(srun, "SLURM_STEP_NUM_TASKS"), {"SLURM_NTASKS"});
  check(kubernetes, {"WORLD_SIZE"});
  CHECK_THAT(refusal({{"RANK", "3"}}), Mentions("RANK=3, WORLD_SIZE is not set"));
  CHECK_THAT(refusal({{"WORLD_SIZE", "2"}}), Mentions("RANK is not set, WORLD_SIZE=2"));
  CHECK_THAT(refusal({{"LOCAL_RANK", "0"}}), Mentions("LOCAL_RANK=0"));
  CHECK_THAT(refusal({{"TORCHELASTIC_RUN_ID", "a"}}), Mentions("RANK is not set"));
  CHECK_THAT(refusal({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prte@1"}}), Mentions("PMIX_RANK=1"));
}

TEST_CASE("Ranks: what contradicts itself is an error with the values", "[ranks]") {
  const auto check = [](const Variables& base, const std::string& name, const std::string& value) {
    CAPTURE(name, value);
    CHECK_THAT(refusal(with(base, {{name, value}})), Mentions(name + ('=' + value)));
  };
  check(torchrun, "RANK", "8");
  check(torchrun, "WORLD_SIZE", "5");
  check(torchrun, "WORLD_SIZE", "0");
  check(torchrun, "LOCAL_RANK", "4");
  check(torchrun, "LOCAL_WORLD_SIZE", "9");
  check(srun, "SLURM_PROCID", "11");
  check(srun, "SLURM_LOCALID", "4");
  check(srun, "SLURM_NODEID", "3");
  check(srun, "SLURM_STEP_TASKS_PER_NODE", "4(x2");
  check(srun, "SLURM_STEP_TASKS_PER_NODE", "many");
  check(srun, "RANK", "4");
  check(srun, "WORLD_SIZE", "8");
  check(open_mpi_4, "RANK", "0");
  check(open_mpi_4, "LOCAL_WORLD_SIZE", "1");
  check(hydra, "PMI_RANK", "4");
  check(kubernetes, "JOB_COMPLETION_INDEX", "4");
  check(kubernetes, "RANK", "2");
  CHECK_THAT(refusal(with(srun, {{"RANK", "4"}})), Mentions("Slurm says that the rank is 5"));
}

TEST_CASE("Ranks: what is no number is an error", "[ranks]") {
  const std::string value = GENERATE("-1", "+1", "1.0", " 1", "1 ", "one", "0x1", "99999999999");
  CAPTURE(value);
  CHECK_THAT(refusal(with(torchrun, {{"RANK", value}})), Mentions("RANK=" + value));
  CHECK_THAT(refusal(with(srun, {{"SLURM_PROCID", value}})), Mentions("SLURM_PROCID=" + value));
  CHECK_THAT(refusal(with(torchrun, {{"MASTER_PORT", value}})), Mentions("MASTER_PORT=" + value));
}

TEST_CASE("Ranks: a port is one of 65535", "[ranks]") {
  for (const char* port : {"0", "65536"})
    CHECK_THAT(refusal(with(torchrun, {{"MASTER_PORT", port}})), Mentions("is no port"));
}

// ---- Slurm's lists -----------------------------------------------------------------------------

TEST_CASE("Ranks: the first machine of Slurm's list", "[ranks]") {
  const auto [list, first] = GENERATE(table<std::string, std::string>({
      {"node1", "node1"},
      {"node1,node2", "node1"},
      {"gpu[07-09,12]", "gpu07"},
      {"gpu[3,5-6]", "gpu3"},
      {"gpu[3],login", "gpu3"},
      {"rack[1-2]-node[03-04]", "rack1-node03"},
      {"a-b.example[1-2].org,c", "a-b.example1.org"},
      {"", ""},
  }));
  CHECK(detail::first_host(list) == first);
}

TEST_CASE("Ranks: tasks of a machine in Slurm's list", "[ranks]") {
  CHECK(detail::tasks_of_node("8", 0) == 8);
  CHECK(detail::tasks_of_node("8", 1) == std::nullopt);
  CHECK(detail::tasks_of_node("4(x2),3,1(x10)", 1) == 4);
  CHECK(detail::tasks_of_node("4(x2),3,1(x10)", 2) == 3);
  CHECK(detail::tasks_of_node("4(x2),3,1(x10)", 12) == 1);
  CHECK(detail::tasks_of_node("4(x2),3,1(x10)", 13) == std::nullopt);
  for (const char* list : {"", "(x2)", "4(x", "4(x2", "4(y2)", "4;3", "x"})
    CHECK(detail::tasks_of_node(list, 1) == std::nullopt);
}

// ---- What takes them ---------------------------------------------------------------------------

TEST_CASE("Ranks: a sampler takes them", "[ranks]") {
  const Ranks ranks{.rank = 1, .world_size = 3};
  const Sampler sampler({.samples = 9, .batch_size = 3, .rank = 7}, ranks);
  std::vector<std::uint64_t> samples;
  sampler.samples(0, 0, samples);
  CHECK(samples == std::vector<std::uint64_t>{1, 4, 7});
  CHECK(sampler.world_size() == 3);
}

TEST_CASE("Ranks: metrics have the label `rank`", "[ranks]") {
  const Labels::value_type label = rank_label(Ranks{.rank = 12, .world_size = 16});
  CHECK(label.first == "rank");
  CHECK(label.second == "12");
}

TEST_CASE("Ranks: the process's own environment is read", "[ranks]") {
  // What it says depends on who runs the tests: that it is read, examples/ show in processes.
  CHECK(Ranks::from_environment().world_size >= 1);
}

}  // namespace
}  // namespace penstock
