// SPDX-License-Identifier: Apache-2.0
#pragma once

// choose_placement(): what becomes of a Placement, once, on the thread that constructs the
// pipeline.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <map>
#include <penstock/cuda.hpp>
#include <penstock/detail/cpus.hpp>
#include <penstock/detail/local_rank.hpp>
#include <penstock/detail/topology.hpp>
#include <penstock/error.hpp>
#include <penstock/placement.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// What was chosen for a pipeline.
struct ThreadPlacement {
  CpuMask cpus = {};        // empty: nothing is bound
  std::size_t workers = 0;  // so many of them are bound
  std::string report = {};  // Stats::placement

  /// On the worker's own thread.
  void bind_worker(std::size_t worker) const noexcept {
    if (worker < workers) cpus.bind_this_thread();
  }
};

/// What an automatic placement depends on, beside the machine.
struct PlacementInputs {
  Cpus own;                          // the constructing thread may run on
  std::vector<std::string> devices;  // bus ids of those that the process sees
  std::size_t device = 0;            // the current one of them
  int numa_node = -1;                // the option
  LocalRank rank = {};

  const std::string& bus_id() const { return devices[device]; }
};

inline ThreadPlacement placed_nowhere(const std::string& why) {
  return {.report = "none: " + why};
}

/// Bus ids of the devices that the machine's ranks use: rank i the i-th, modulo their number. Empty
/// where this rank does not.
inline std::vector<std::string> devices_by_rank(const Topology& topology,
                                                const PlacementInputs& here) {
  std::vector<std::string> devices = here.devices;
  if (devices.size() == 1) {  // The only one, or the one that the launcher shows to this rank.
    std::vector<std::string> all = topology.gpus();
    if (!all.empty()) devices = std::move(all);
  }
  const auto rank = static_cast<std::size_t>(here.rank.rank);
  if (Topology::in_sysfs(devices[rank % devices.size()]) != Topology::in_sysfs(here.bus_id()))
    return {};
  return devices;
}

/// The machine's ranks whose devices are on `node`.
inline std::vector<int> ranks_on(const Topology& topology, const PlacementInputs& here, int node) {
  const std::vector<std::string> devices = devices_by_rank(topology, here);
  std::vector<int> ranks;
  for (int rank = 0; rank < here.rank.size && !devices.empty(); ++rank)
    if (topology.node_of(devices[static_cast<std::size_t>(rank) % devices.size()]) ==
        std::to_string(node))
      ranks.push_back(rank);
  return ranks;
}

/// `cpus`, those of a core together.
inline std::vector<Cpus> whole_cores(const Topology& topology, Cpus cpus) {
  std::vector<Cpus> cores;
  while (!cpus.empty()) {
    Cpus core = in_both(topology.core_of(cpus.front()), cpus);
    if (core.empty()) core = {cpus.front()};
    cpus = without(cpus, core);
    cores.push_back(std::move(core));
  }
  return cores;
}

/// This rank's part of the CPUs of `node`, and a word on it.
inline std::pair<Cpus, std::string> rank_share(const Topology& topology,
                                               const PlacementInputs& here, int node,
                                               const Cpus& near) {
  if (here.rank.size == 1) return {near, ""};
  if (is_bound(topology, here.own)) return {near, ", to which this rank was bound"};
  const std::vector<int> ranks = ranks_on(topology, here, node);
  const auto me = std::find(ranks.begin(), ranks.end(), here.rank.rank);
  if (me == ranks.end())
    return {near, ", not shared out: which ranks use the devices there is not known"};
  const std::vector<Cpus> cores = whole_cores(topology, near);
  if (cores.size() < ranks.size())
    return {near, ", not shared out: " + std::to_string(ranks.size()) + " ranks"};
  const auto index = static_cast<std::size_t>(me - ranks.begin());
  Cpus part;
  for (std::size_t core = cores.size() * index / ranks.size();
       core < cores.size() * (index + 1) / ranks.size(); ++core)
    part.insert(part.end(), cores[core].begin(), cores[core].end());
  std::sort(part.begin(), part.end());
  return {std::move(part), ", the part of local rank " + std::to_string(here.rank.rank) +
                               ", one of " + std::to_string(ranks.size()) + " there"};
}

/// Nothing at all on a machine with one node.
inline ThreadPlacement place_near(const Topology& topology, const PlacementInputs& here) {
  const std::map<int, Cpus> nodes = topology.nodes();
  if (nodes.size() < 2) return {};
  std::string told = topology.node_of(here.bus_id());
  std::string of = ", beside device " + Topology::in_sysfs(here.bus_id());
  if (here.numa_node >= 0) {
    told = std::to_string(here.numa_node);
    of = ", as numa_node says";
  }
  if (told.empty() || told == "-1")
    return placed_nowhere("the NUMA node of device " + Topology::in_sysfs(here.bus_id()) +
                          " is not known (sysfs says " + (told.empty() ? "nothing" : told) +
                          "): set numa_node, or name cores with Placement::cores");
  const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const auto& numbered) {
    return std::to_string(numbered.first) == told;
  });
  if (node == nodes.end()) return placed_nowhere("NUMA node " + told + of + ", has no cores");
  const Cpus near = in_both(node->second, here.own);
  if (near.empty())
    return placed_nowhere("the process may run on cores " + to_text(here.own) + ", and NUMA node " +
                          told + of + ", has " + to_text(node->second) +
                          ": start it on some of these");
  auto [cpus, share] = rank_share(topology, here, node->first, near);
  return {.cpus = CpuMask(cpus),
          .workers = cpus.size(),
          .report = "cores " + to_text(cpus) + " of NUMA node " + told + of + share};
}

inline ThreadPlacement place_on(const Cpus& cores, const Cpus& own) {
  if (const Cpus others = without(cores, own); !others.empty())
    throw std::invalid_argument("Placement::cores: this thread may not run on " + to_text(others) +
                                ", only on " + to_text(own) +
                                " (its affinity mask and cpuset): name some of these, or start the "
                                "process with more");
  return {.cpus = CpuMask(cores),
          .workers = std::numeric_limits<std::size_t>::max(),
          .report = "cores " + to_text(cores) + ", as Placement::cores says"};
}

inline std::vector<std::string> visible_devices() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  std::vector<std::string> devices;
  for (int device = 0; device < count; ++device) {
    std::array<char, 32> bus_id{};
    check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
          "cudaDeviceGetPCIBusId", device);
    devices.emplace_back(bus_id.data());
  }
  return devices;
}

inline ThreadPlacement place_near_current_device(const PlacementRequest& request, int numa_node,
                                                 const Cpus& own) {
  const Topology topology(request.root);
  if (topology.nodes().size() < 2) return {};  // Before any call of CUDA's.
  try {
    return place_near(topology, {.own = own,
                                 .devices = visible_devices(),
                                 .device = static_cast<std::size_t>(current_device()),
                                 .numa_node = numa_node,
                                 .rank = request.local_size > 0
                                             ? LocalRank{request.local_rank, request.local_size}
                                             : LocalRank::of_environment()});
  } catch (const CudaError& error) {
    cudaGetLastError();  // It is nobody else's.
    return placed_nowhere(error.what());
  }
}

/// For the current device and the calling thread. `numa_node`: that of the memory, or -1.
inline ThreadPlacement choose_placement(const Placement& placement, int numa_node = -1) {
  const PlacementRequest& request = placement.request();
  if (request.kind == PlacementRequest::Kind::off) return {};
  const Cpus own = CpuMask::of_this_thread().cpus();
  if (request.kind == PlacementRequest::Kind::cores) return place_on(request.cores, own);
  return place_near_current_device(request, numa_node, own);
}

}  // namespace penstock::detail
