// SPDX-License-Identifier: Apache-2.0
#pragma once

// Topology: reads from Linux the machine's NUMA nodes, cores and PCI devices.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <penstock/detail/cpus.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Each call reads files. A file that cannot be read counts as empty.
class Topology {
 public:
  /// `root`: the directory of the files, "/" or a tree that a test has created.
  explicit Topology(std::filesystem::path root = "/") : root_(std::move(root)) {}

  /// Returns the CPUs of each node that has CPUs, by node number. The numbers may have gaps.
  std::map<int, Cpus> nodes() const {
    std::map<int, Cpus> nodes;
    for (const auto& folder : folders("sys/devices/system/node")) {
      if (!folder.starts_with("node")) continue;
      const auto node = read_number<int>(std::string_view(folder).substr(4));
      if (!node) continue;
      Cpus cpus = read_cpus(line("sys/devices/system/node/" + folder + "/cpulist"));
      if (!cpus.empty()) nodes.emplace(*node, std::move(cpus));
    }
    return nodes;
  }

  /// Returns the CPUs of the core of `cpu`: its hyper-threads.
  Cpus core_of(int cpu) const {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const Cpus core = read_cpus(line(folder + "thread_siblings_list"));
    return core.empty() ? Cpus{cpu} : core;
  }

  /// Returns the NUMA node of a PCI device as sysfs has it. "-1": the firmware does not provide it;
  /// "": there is no such device.
  std::string node_of(const std::string& bus_id) const {
    return line(kDevices + in_sysfs(bus_id) + "/numa_node");
  }

  /// Returns the bus ids of NVIDIA's GPUs in ascending order.
  std::vector<std::string> gpus() const {
    std::vector<std::string> gpus;
    for (const std::string& device : folders(kDevices))
      if (line(kDevices + device + "/vendor") == "0x10de" &&
          line(kDevices + device + "/class").starts_with("0x03"))  // a display controller
        gpus.push_back(device);
    return gpus;
  }

  /// Returns the CPUs that a process has if it is not bound: those of its cpuset that the scheduler
  /// uses.
  Cpus unbound() const {
    Cpus cpus = cpuset();
    if (cpus.empty()) cpus = read_cpus(line("sys/devices/system/cpu/online"));
    return without(cpus, read_cpus(line("sys/devices/system/cpu/isolated")));
  }

  /// Converts a bus id such as "0000:1B:00.0" or "00000000:1B:00.0" to the spelling of sysfs.
  static std::string in_sysfs(std::string_view bus_id) {
    constexpr std::size_t kDomain = 4;
    while (bus_id.find(':') > kDomain && bus_id.starts_with('0')) bus_id.remove_prefix(1);
    return lower_case(bus_id);
  }

 private:
  static constexpr const char* kDevices = "sys/bus/pci/devices/";

  std::string line(const std::string& file) const {
    std::string text;
    std::ifstream stream(root_ / file);
    std::getline(stream, text);
    return text;
  }

  /// Returns the names of the entries of a directory, sorted.
  std::vector<std::string> folders(const char* folder) const {
    std::vector<std::string> names;
    std::error_code none;
    for (std::filesystem::directory_iterator entry(root_ / folder, none), end;
         !none && entry != end; entry.increment(none))
      names.push_back(entry->path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  /// Returns the cpuset of this process's control group (v2), or of the nearest parent that has
  /// one.
  Cpus cpuset() const {
    Cpus cpus;
    const auto read = [&](std::istream& file) {
      std::string text;
      if (cpus.empty() && std::getline(file, text)) cpus = read_cpus(text);
    };
    for_each_cgroup({.groups = root_ / "sys/fs/cgroup", .membership = root_ / "proc/self/cgroup"},
                    "cpuset.cpus.effective", read);
    return cpus;
  }

  std::filesystem::path root_;
};

}  // namespace penstock::detail
