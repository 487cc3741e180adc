// SPDX-License-Identifier: Apache-2.0
#pragma once

// usable_cores(): what default numbers of threads are computed from.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <penstock/detail/cgroup.hpp>
#include <penstock/detail/cpus.hpp>
#include <string>
#include <thread>

namespace penstock::detail {

/// Cores of this thread's affinity mask. (hardware_concurrency tells those of the machine with some
/// versions of the C library.)
inline int cores_of_mask() {
  const std::size_t cores = CpuMask::of_this_thread().cpus().size();
  return std::max(1, static_cast<int>(cores != 0 ? cores : std::thread::hardware_concurrency()));
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
