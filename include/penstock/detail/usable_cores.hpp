// SPDX-License-Identifier: Apache-2.0
#pragma once

// usable_cores(): what default numbers of threads are computed from.

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <penstock/detail/cgroup.hpp>
#include <string>
#include <thread>

namespace penstock::detail {

/// Cores of this thread's affinity mask. (hardware_concurrency tells those of the machine with some
/// versions of the C library.)
inline int cores_of_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // Over 1,024 cores.
}

/// Cores that this process may use: those of its affinity mask, at most the quotas of its control
/// groups.
inline int usable_cores(const CgroupFiles& files = {}) {
  auto cores = static_cast<double>(cores_of_mask());
  for_each_cgroup(files, "cpu.max", [&](std::istream& file) {
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0)
      cores = std::min(cores, std::stod(quota) / period);
  });
  return std::max(1, static_cast<int>(std::ceil(cores)));
}

}  // namespace penstock::detail
