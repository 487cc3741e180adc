// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns the system's number of the calling thread. It asks the system only once.
inline std::uint64_t this_thread_id() {
  thread_local constinit std::uint64_t id = 0;
  if (id == 0) id = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  return id;
}

}  // namespace penstock::trace::detail
