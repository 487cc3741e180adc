// SPDX-License-Identifier: Apache-2.0
#include "thread_state.hpp"

#include <atomic>

namespace penstock::emulation::detail {

ThreadState& this_thread() {
  static std::atomic<std::uint64_t> threads{0};
  // Nothing to destroy, so it can be used until the thread is gone.
  thread_local ThreadState state;
  if (state.number == 0) state.number = ++threads;
  return state;
}

}  // namespace penstock::emulation::detail
