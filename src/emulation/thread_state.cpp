// SPDX-License-Identifier: Apache-2.0
#include "thread_state.hpp"

#include <atomic>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

ThreadState& this_thread() {
  static std::atomic<std::uint64_t> threads{0};
  // The type has no destructor, so the object can be used until the thread has ended.
  thread_local ThreadState state;
  if (state.number == 0) state.number = ++threads;
  return state;
}

}  // namespace penstock::emulation::detail
