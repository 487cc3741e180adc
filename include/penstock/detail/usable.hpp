// SPDX-License-Identifier: Apache-2.0
#pragma once

// What this process may use of the machine: its cores and its memory, from which default numbers of
// threads and default limits are computed. Control groups (version 2) limit both: each of the
// groups from its own up to the root may have limits.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <penstock/detail/cpus.hpp>
#include <string>
#include <thread>

namespace penstock::detail {

/// Where the kernel tells of control groups; tests have places of their own.
struct CgroupFiles {
  std::string groups = "/sys/fs/cgroup";
  std::string membership = "/proc/self/cgroup";
};

/// Of this process, as in "/a/b"; "": the root, or unknown.
inline std::string cgroup_of_process(const CgroupFiles& files) {
  std::ifstream lines(files.membership);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::/")) return line.size() == 4 ? std::string() : line.substr(3);
  return {};
}

/// Calls `read` with the file `name` of each group that has it.
template <class Read>
void for_each_cgroup(const CgroupFiles& files, const char* name, Read read) {
  std::string group = cgroup_of_process(files);
  while (true) {
    if (std::ifstream file(files.groups + group + '/' + name); file) read(file);
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

/// Cores that this process may use: those of its affinity mask, at most the quotas of its control
/// groups.
inline int usable_cores(const CgroupFiles& files = {}) {
  // hardware_concurrency() tells the cores of the machine with some versions of the C library.
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

/// Bytes of memory that this process may use: those of the machine, or the least limit of its
/// control groups.
inline std::size_t usable_memory(const CgroupFiles& files = {}) {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  std::size_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for_each_cgroup(files, "memory.max", [&](std::istream& file) {
    std::size_t limit = 0;
    if (file >> limit) bytes = std::min(bytes, limit);  // Else "max".
  });
  return bytes;
}

}  // namespace penstock::detail
