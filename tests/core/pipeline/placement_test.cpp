// SPDX-License-Identifier: Apache-2.0

// Placement over machines that a test makes up, and on the one that it runs on. Runs emulated, and
// on a GPU.

#include <penstock/placement.hpp>
#include <penstock/prefetcher.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <penstock/detail/local_rank.hpp>
#include <penstock/detail/pipeline/thread_placement.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/made_machine.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;
using detail::CpuMask;
using detail::Cpus;
using detail::in_both;
using detail::place_near;
using detail::PlacementInputs;
using detail::read_cpus;
using detail::ThreadPlacement;
using detail::to_text;
using detail::Topology;

std::string chosen(const ThreadPlacement& placed) {
  return to_text(placed.cpus.cpus());
}

/// Two sockets of 8 cores with two threads each, one device on the second.
void make_two_sockets(MadeMachine& machine, const std::string& device_node = "1") {
  machine.online("0-31").node(0, "0-7,16-23").node(1, "8-15,24-31").two_threads_a_core(16);
  machine.gpu("0000:1b:00.0", device_node);
}

PlacementInputs alone(const std::string& own = "0-31") {
  return {.own = read_cpus(own), .devices = {"0000:1B:00.0"}};
}

// ---- Lists of CPUs ------------------------------------------------------------------------------

TEST_CASE("lists of CPUs are read and written as sysfs does", "[placement]") {
  CHECK(read_cpus("0-3,8,10-11") == Cpus{0, 1, 2, 3, 8, 10, 11});
  CHECK(read_cpus("5") == Cpus{5});
  CHECK(read_cpus("3,1,2-3") == Cpus{1, 2, 3});
  for (const char* none : {"", "x", "1-", "-1", "1;2", "0-3:1/2", "1,x"})
    CHECK(read_cpus(none).empty());
  for (const char* text : {"", "0", "0-3,8,10-11", "1,3,5", "0-1,63-65,1024"})
    CHECK(to_text(read_cpus(text)) == text);
}

TEST_CASE("a mask holds any CPU, and an empty one binds nothing", "[placement]") {
  const Cpus many{0, 63, 64, 1023, 1024, 5000};
  CHECK(CpuMask(many).cpus() == many);
  const Cpus before = own_cpus();
  REQUIRE(!before.empty());
  CpuMask().bind_this_thread();
  CpuMask(Cpus{100'000}).bind_this_thread();  // There is no such CPU: the kernel refuses.
  CHECK(own_cpus() == before);
  {
    const detail::BoundHere here(CpuMask(Cpus{before.back()}));
    CHECK(own_cpus() == Cpus{before.back()});
  }
  CHECK(own_cpus() == before);
}

// ---- The device's node --------------------------------------------------------------------------

TEST_CASE("with one NUMA node nothing is placed, and nothing said", "[placement]") {
  MadeMachine machine;
  machine.node(0, "0-31").gpu("0000:1b:00.0", "0");
  machine.node(1, "");  // memory alone, as that of a device
  const ThreadPlacement placed = place_near(machine.topology(), alone());
  CHECK(placed.cpus.empty());
  CHECK(placed.report.empty());
}

TEST_CASE("the cores are those of the device's node", "[placement]") {
  MadeMachine machine;
  make_two_sockets(machine);
  const ThreadPlacement placed = place_near(machine.topology(), alone());
  CHECK(chosen(placed) == "8-15,24-31");
  CHECK(placed.workers == 16);
  CHECK(placed.report == "cores 8-15,24-31 of NUMA node 1, beside device 0000:1b:00.0");
}

TEST_CASE("bus ids are found however CUDA spells them", "[placement]") {
  CHECK(Topology::in_sysfs("0000:1B:00.0") == "0000:1b:00.0");
  CHECK(Topology::in_sysfs("00000001:AF:00.0") == "0001:af:00.0");
  CHECK(Topology::in_sysfs("10000:e1:00.0") == "10000:e1:00.0");
}

TEST_CASE("nodes are numbered with gaps on some machines", "[placement]") {
  MadeMachine machine;
  machine.node(0, "0-63").node(8, "64-127").node(252, "").gpu("0000:1b:00.0", "8");
  machine.file("sys/devices/system/node/nodes", "0-8").file("sys/devices/system/node/online", "0");
  CHECK(chosen(place_near(machine.topology(), alone("0-127"))) == "64-127");
}

TEST_CASE("a node that sysfs does not tell is said, with what to do", "[placement]") {
  MadeMachine machine;
  const auto check = [&](const ThreadPlacement& placed, const std::string& says) {
    CHECK(placed.cpus.empty());
    CHECK(placed.workers == 0);
    CHECK(placed.report == "none: the NUMA node of device 0000:1b:00.0 is not known (sysfs says " +
                               says + "): set numa_node, or name cores with Placement::cores");
  };
  machine.node(0, "0-15").node(1, "16-31");
  check(place_near(machine.topology(), alone()), "nothing");
  machine.gpu("0000:1b:00.0", "-1");
  check(place_near(machine.topology(), alone()), "-1");
}

TEST_CASE("numa_node wins over the device's node", "[placement]") {
  for (const char* told : {"1", "-1"}) {
    MadeMachine machine;
    make_two_sockets(machine, told);
    PlacementInputs here = alone();
    here.numa_node = 0;
    const ThreadPlacement placed = place_near(machine.topology(), here);
    CHECK(placed.report == "cores 0-7,16-23 of NUMA node 0, as numa_node says");
    CHECK(chosen(placed) == "0-7,16-23");
    here.numa_node = 7;
    CHECK(place_near(machine.topology(), here).report ==
          "none: NUMA node 7, as numa_node says, has no cores");
  }
}

// ---- Within what the process may use ------------------------------------------------------------

TEST_CASE("the affinity mask is never left", "[placement]") {
  MadeMachine machine;
  make_two_sockets(machine);
  CHECK(chosen(place_near(machine.topology(), alone("4-9,24"))) == "8-9,24");
  const ThreadPlacement placed = place_near(machine.topology(), alone("0-3"));
  CHECK(placed.cpus.empty());
  CHECK(placed.report ==
        "none: the process may run on cores 0-3, and NUMA node 1, beside device 0000:1b:00.0, has "
        "8-15,24-31: start it on some of these");
}

TEST_CASE("a process is unbound on all CPUs of its cpuset that are not isolated", "[placement]") {
  MadeMachine machine;
  machine.online("0-31").file("proc/self/cgroup", "1:cpu:/old\n0::/jobs/one/task");
  const auto unbound = [&] { return to_text(machine.topology().unbound()); };
  CHECK(unbound() == "0-31");
  machine.file("sys/fs/cgroup/cpuset.cpus.effective", "0-23");
  CHECK(unbound() == "0-23");
  machine.file("sys/fs/cgroup/jobs/cpuset.cpus.effective", "0-15");
  CHECK(unbound() == "0-15");
  machine.file("sys/devices/system/cpu/isolated", "0,15-31");
  CHECK(unbound() == "1-14");
}

// ---- Ranks --------------------------------------------------------------------------------------

/// 64 CPUs: two sockets of 16 cores with two threads each; 8 devices, of which `near` are on node
/// 0.
void make_eight_devices(MadeMachine& machine, int near = 4) {
  machine.online("0-63").node(0, "0-15,32-47").node(1, "16-31,48-63").two_threads_a_core(32);
  machine
      .file("sys/bus/pci/devices/0000:02:00.0/vendor", "0x1a03")  // of the board's console
      .file("sys/bus/pci/devices/0000:02:00.0/class", "0x030000");
  machine
      .file("sys/bus/pci/devices/0000:03:00.0/vendor", "0x10de")  // a switch
      .file("sys/bus/pci/devices/0000:03:00.0/class", "0x068000");
  for (int i = 0; i < 8; ++i)
    machine.gpu("0000:1" + std::to_string(i) + ":00.0", i < near ? "0" : "1");
}

PlacementInputs rank_of_eight(int rank, int size = 8) {
  PlacementInputs here{.own = read_cpus("0-63"), .devices = {}, .rank = {rank, size}};
  for (int i = 0; i < 8; ++i) here.devices.push_back("0000:1" + std::to_string(i) + ":00.0");
  here.device = static_cast<std::size_t>(rank % 8);
  return here;
}

/// As a launcher that shows each rank its own device.
PlacementInputs with_one_device(PlacementInputs here) {
  here.devices = {here.bus_id()};
  here.device = 0;
  return here;
}

TEST_CASE("ranks share out the cores of their devices' node", "[placement]") {
  MadeMachine machine;
  make_eight_devices(machine);
  const std::array parts{"0-3,32-35",   "4-7,36-39",   "8-11,40-43",  "12-15,44-47",
                         "16-19,48-51", "20-23,52-55", "24-27,56-59", "28-31,60-63"};
  for (int rank = 0; rank < 8; ++rank) {
    const PlacementInputs here = rank_of_eight(rank);
    const ThreadPlacement placed = place_near(machine.topology(), here);
    CHECK(chosen(placed) == parts.at(static_cast<std::size_t>(rank)));
    CHECK(chosen(place_near(machine.topology(), with_one_device(here))) == chosen(placed));
  }
  CHECK(place_near(machine.topology(), rank_of_eight(5)).report ==
        "cores 20-23,52-55 of NUMA node 1, beside device 0000:15:00.0, the part of local rank 5, "
        "one of 4 there");
}

TEST_CASE("parts have no gap and no overlap, and keep threads of a core together", "[placement]") {
  for (int near = 0; near <= 8; near += 2) {
    MadeMachine machine;
    make_eight_devices(machine, near);
    for (int ranks = 1; ranks <= 11; ++ranks) {
      std::multiset<int> taken;
      std::set<int> nodes;
      std::array<std::vector<std::size_t>, 2> sizes;
      for (int rank = 0; rank < ranks; ++rank) {
        const ThreadPlacement placed = place_near(machine.topology(), rank_of_eight(rank, ranks));
        const Cpus cpus = placed.cpus.cpus();
        const int node = rank % 8 < near ? 0 : 1;
        nodes.insert(node);
        sizes.at(static_cast<std::size_t>(node)).push_back(cpus.size());
        for (const int cpu : cpus) {
          CHECK((cpu / 16 % 2) == node);
          CHECK(std::count(cpus.begin(), cpus.end(), (cpu + 32) % 64) == 1);
        }
        taken.insert(cpus.begin(), cpus.end());
      }
      CHECK(taken.size() == 32 * nodes.size());
      CHECK(std::set<int>(taken.begin(), taken.end()).size() == taken.size());
      for (const auto& of_node : sizes)
        if (!of_node.empty()) {
          const auto [least, most] = std::minmax_element(of_node.begin(), of_node.end());
          CHECK(*most - *least <= 2);  // one core
        }
    }
  }
}

TEST_CASE("ranks that were bound keep what they were given", "[placement]") {
  MadeMachine machine;
  make_eight_devices(machine);
  PlacementInputs here = rank_of_eight(1);
  here.own = read_cpus("8-23,40-55");
  const ThreadPlacement placed = place_near(machine.topology(), here);
  CHECK(chosen(placed) == "8-15,40-47");
  CHECK(placed.report ==
        "cores 8-15,40-47 of NUMA node 0, beside device 0000:11:00.0, to which this rank was "
        "bound");
  // A container of these cores has bound nobody.
  machine.file("proc/self/cgroup", "0::/")
      .file("sys/fs/cgroup/cpuset.cpus.effective", "8-23,40-55");
  CHECK(chosen(place_near(machine.topology(), here)) == "10-11,42-43");
}

TEST_CASE("where ranks cannot share out, each has the whole node, and says why", "[placement]") {
  MadeMachine machine;
  make_eight_devices(machine);
  const auto report = [&](const PlacementInputs& here) {
    const ThreadPlacement placed = place_near(machine.topology(), here);
    CHECK(chosen(placed) == "0-15,32-47");
    return placed.report;
  };
  PlacementInputs other_device = rank_of_eight(6);
  other_device.device = 2;
  CHECK_THAT(report(other_device),
             Mentions("not shared out: which ranks use the devices there is not known"));
  CHECK_THAT(report(with_one_device(other_device)), Mentions("is not known"));
  PlacementInputs other_node = rank_of_eight(6);
  other_node.numa_node = 0;
  CHECK_THAT(report(other_node), Mentions("is not known"));
  CHECK_THAT(report(rank_of_eight(0, 40)), Mentions("not shared out: 20 ranks"));
  CHECK(chosen(place_near(machine.topology(), rank_of_eight(9, 32))) == "5,37");  // a core each
}

TEST_CASE("ranks that use the one device of a machine share its node", "[placement]") {
  MadeMachine machine;
  make_two_sockets(machine);
  PlacementInputs here = alone();
  here.rank = {1, 2};
  CHECK(chosen(place_near(machine.topology(), here)) == "12-15,28-31");
}

TEST_CASE("a CPU whose threads sysfs does not tell is a core", "[placement]") {
  MadeMachine machine;
  machine.online("0-5").node(0, "0-2").node(1, "3-5").gpu("0000:1b:00.0", "1");
  PlacementInputs here = alone("0-5");
  here.rank = {1, 2};
  CHECK(chosen(place_near(machine.topology(), here)) == "4-5");
  machine.file("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "7,9");  // nonsense
  CHECK(chosen(place_near(machine.topology(), here)) == "4-5");
}

TEST_CASE("the launcher's variables tell the local rank, and some of them tell nothing",
          "[placement]") {
  const int all = PrefetcherOptions().workers;
  struct Variables {
    Variables() {
      for (const auto& [name, value] : names) ::setenv(name, value, 1);
    }
    ~Variables() {
      for (const auto& [name, value] : names) ::unsetenv(name);
    }
    const std::vector<std::pair<const char*, const char*>> names{
        {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  } const variables;
  const auto rank = detail::LocalRank::of_environment();
  CHECK(rank.rank == 1);
  CHECK(rank.size == 2);
  const bool bound = detail::is_bound(Topology(), own_cpus());
  CHECK(PrefetcherOptions().workers == (bound ? all : detail::workers_of(all + 1, 2)));
  ::unsetenv("WORLD_SIZE");
  CHECK(detail::LocalRank::of_environment().size == 1);
  CHECK(PrefetcherOptions().workers == all);
}

TEST_CASE("the default number of workers is a rank's part", "[placement]") {
  CHECK(detail::workers_of(64, 1) == 63);
  CHECK(detail::workers_of(64, 8) == 7);
  CHECK(detail::workers_of(6, 4) == 1);
  CHECK(detail::workers_of(2, 8) == 1);
  MadeMachine machine;
  machine.online("0-7");
  CHECK(!detail::is_bound(machine.topology(), read_cpus("0-7")));
  CHECK(detail::is_bound(machine.topology(), read_cpus("0-3")));
}

// ---- What is asked for --------------------------------------------------------------------------

TEST_CASE("a placement that cannot be is refused, with what to change", "[placement]") {
  CHECK(thrown<std::invalid_argument>([] { Placement::cores({}); }) ==
        "Placement::cores: no core is named: name one or more, or take Placement::off()");
  CHECK_THAT(thrown<std::invalid_argument>([] {
               Placement::cores({3, -1});
             }),
             Mentions("-1 is no core"));
  const auto ranks = [](int rank, int size) {
    return Ranks{.rank = 0, .world_size = 8, .local_rank = rank, .local_size = size};
  };
  for (const Ranks& wrong : {ranks(2, 2), ranks(-1, 2), ranks(0, 0)})
    CHECK_THAT(
        thrown<std::invalid_argument>([&] { static_cast<void>(Placement::automatic(wrong)); }),
        Mentions("less than local_size"));

  const Cpus own = own_cpus();
  const int other = own.back() + 1;
  CHECK(thrown<std::invalid_argument>([&] {
          static_cast<void>(detail::choose_placement(Placement::cores({own.front(), other})));
        }) ==
        "Placement::cores: this thread may not run on " + std::to_string(other) + ", only on " +
            to_text(own) +
            " (its affinity mask and cpuset): name some of these, or start the process with more");
  CHECK(Placement::automatic() == Placement());
  CHECK(Placement::cores({2, 1, 2}) == Placement::cores({1, 2}));
  CHECK(Placement::cores({1}) != Placement::cores({2}));
  CHECK(Placement::off() != Placement());
  CHECK(Placement::automatic(ranks(1, 2)) != Placement::automatic(ranks(0, 2)));
}

TEST_CASE("on this machine a choice is of its cores, or is none and says why", "[placement]") {
  const ThreadPlacement placed = detail::choose_placement(Placement::automatic());
  const Topology machine;
  const Cpus own = own_cpus(), cpus = placed.cpus.cpus();
  INFO(placed.report);
  CHECK(in_both(cpus, own) == cpus);
  for (const int cpu : own) CHECK(in_both(machine.core_of(cpu), {cpu}) == Cpus{cpu});
  if (machine.nodes().size() < 2) {
    CHECK(placed.report.empty());
    CHECK(cpus.empty());
  } else {
    CHECK(placed.report.starts_with("none: ") == cpus.empty());
  }
}

}  // namespace
}  // namespace penstock
