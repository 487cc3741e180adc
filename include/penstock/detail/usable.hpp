// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cores and the memory that this process may use. Default numbers of threads and default limits
// are computed from them. Control groups (version 2) limit both: the group of the process and each
// of its parents may have limits.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <penstock/detail/cpus.hpp>
#include <penstock/version.hpp>
#include <string>
#include <thread>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The paths of the kernel's files about control groups; tests use other paths.
struct CgroupFiles {
  std::string groups = "/sys/fs/cgroup";
  std::string membership = "/proc/self/cgroup";
};

/// Returns the control group of this process, such as "/a/b"; "": the root, or unknown.
inline std::string cgroup_of_process(const CgroupFiles& files) {
  std::ifstream lines(files.membership);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::/")) return line.size() == 4 ? std::string() : line.substr(3);
  return {};
}

/// Calls `read` with the file `name` of each group that has it, from the group of this process to
/// the root.
template <class Read>
void for_each_cgroup(const CgroupFiles& files, const char* name, Read read) {
  std::string group = cgroup_of_process(files);
  while (true) {
    if (std::ifstream file(files.groups + group + '/' + name); file) read(file);
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

/// Returns the number of cores that this process may use: those of its affinity mask, limited by
/// the quotas of its control groups.
inline int usable_cores(const CgroupFiles& files = {}) {
  // With some versions of the C library, hardware_concurrency() returns all cores of the machine.
  const std::size_t own = CpuMask::of_this_thread().cpus().size();
  auto cores = static_cast<double>(own != 0 ? own : std::thread::hardware_concurrency());
  for_each_cgroup(files, "cpu.max", [&](std::istream& file) {
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0)
      cores = std::min(cores, std::stod(quota) / period);
  });
  return std::max(1, static_cast<int>(std::ceil(cores)));
}

/// Returns the bytes of memory that this process may use: those of the machine, or the smallest
/// limit of its control groups.
inline std::size_t usable_memory(const CgroupFiles& files = {}) {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  std::size_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for_each_cgroup(files, "memory.max", [&](std::istream& file) {
    std::size_t limit = 0;
    if (file >> limit) bytes = std::min(bytes, limit);  // otherwise it is "max"
  });
  return bytes;
}

}  // namespace penstock::detail
