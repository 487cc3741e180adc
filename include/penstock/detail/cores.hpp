// SPDX-License-Identifier: Apache-2.0
#pragma once

// The default number of worker threads.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <penstock/batch_producer.hpp>
#include <string>
#include <thread>

namespace penstock::detail {

/// Cores that this process may use: those of its affinity mask, at most the quota of its control
/// group.
inline int usable_cores() {
  // hardware_concurrency reads the affinity mask on Linux; it is 0 if the number is unknown.
  auto cores = std::max(1.0, static_cast<double>(std::thread::hardware_concurrency()));
  std::string quota;
  double period = 0;
  if (std::ifstream group("/sys/fs/cgroup/cpu.max"); group >> quota >> period && quota != "max")
    cores = std::min(cores, std::stod(quota) / period);
  return std::max(1, static_cast<int>(std::ceil(cores)));
}

/// One core is left for the thread that feeds the device.
PENSTOCK_INLINE int default_workers() {
  return std::max(1, usable_cores() - 1);
}

}  // namespace penstock::detail
