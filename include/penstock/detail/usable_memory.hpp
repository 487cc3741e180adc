// SPDX-License-Identifier: Apache-2.0
#pragma once

// usable_memory(): what default limits are computed from.

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>

namespace penstock::detail {

/// Bytes of memory that this process may use: those of the machine, or the limit of its control
/// group.
inline std::size_t usable_memory() {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  std::size_t bytes = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t limit = 0;
  if (std::ifstream group("/sys/fs/cgroup/memory.max"); group >> limit)
    bytes = std::min(bytes, limit);
  return bytes;
}

}  // namespace penstock::detail
