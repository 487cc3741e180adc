// SPDX-License-Identifier: Apache-2.0
#pragma once

// usable_memory(): what default limits are computed from.

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <penstock/detail/cgroup.hpp>

namespace penstock::detail {

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
