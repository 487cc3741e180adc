// SPDX-License-Identifier: Apache-2.0
#pragma once

// Machines with NUMA nodes, of files alone:
//
//   MadeMachine machine;
//   machine.node(0, "0-7").node(1, "8-15").gpu("0000:1b:00.0", "1");
//   prefetcher options: {.placement = machine.automatic()}

#include <cuda_runtime_api.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <penstock/detail/cpus.hpp>
#include <penstock/detail/topology.hpp>
#include <penstock/placement.hpp>
#include <string>

#include "catch.hpp"
#include "temporary_directory.hpp"

namespace penstock::test {

inline detail::Cpus own_cpus() {
  return detail::CpuMask::of_this_thread().cpus();
}

/// Files as Linux has them below /sys and /proc.
class MadeMachine {
 public:
  MadeMachine& file(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << '\n';
    return *this;
  }
  MadeMachine& online(const std::string& cpus) {
    return file("sys/devices/system/cpu/online", cpus);
  }
  MadeMachine& node(int number, const std::string& cpus) {
    return file("sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cpus);
  }
  /// CPUs 0 ... cores - 1 have their second thread at + cores.
  MadeMachine& two_threads_a_core(int cores) {
    for (int cpu = 0; cpu < 2 * cores; ++cpu) {
      const std::string first = std::to_string(cpu % cores);
      file("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
           first + "," + std::to_string(cpu % cores + cores));
    }
    return *this;
  }
  MadeMachine& gpu(const std::string& bus_id, const std::string& node) {
    const std::string device = "sys/bus/pci/devices/" + bus_id;
    return file(device + "/numa_node", node)
        .file(device + "/vendor", "0x10de")
        .file(device + "/class", "0x030200");
  }

  std::filesystem::path root() const { return directory_ / "."; }
  detail::Topology topology() const { return detail::Topology(root()); }
  Placement automatic() const {
    return Placement(detail::PlacementRequest{.root = root().string()});
  }

 private:
  TemporaryDirectory directory_;
};

/// A machine with the CPUs of this one: the first on node 0, the others, with every device, on 1.
/// Tests of it have nothing to see on a machine with one CPU.
class SplitMachine : public MadeMachine {
 public:
  SplitMachine() : far_{own_.front()}, near_(own_.begin() + 1, own_.end()) {
    using detail::to_text;
    online(to_text(own_)).node(0, to_text(far_)).node(1, to_text(near_));
    int devices = 0;
    REQUIRE_CUDA(cudaGetDeviceCount(&devices));
    for (int device = 0; device < devices; ++device) gpu(bus_id(device), "1");
  }

  bool is_split() const { return !near_.empty(); }
  const detail::Cpus& own() const { return own_; }
  const detail::Cpus& near() const { return near_; }
  /// The first, as sysfs spells it.
  std::string device() const { return bus_id(0); }

 private:
  static std::string bus_id(int device) {
    std::array<char, 32> text{};
    REQUIRE_CUDA(cudaDeviceGetPCIBusId(text.data(), 32, device));
    return detail::Topology::in_sysfs(text.data());
  }

  detail::Cpus own_ = own_cpus();
  detail::Cpus far_, near_;
};

}  // namespace penstock::test
