// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ctrl-C (or SIGTERM) asks a program to end after the step that it is at, so that files are closed
// and threads joined. A second one ends it at once; files that were being written are removed.
//
//   examples::watch_interrupts();             // once, at the start of main
//   while (more && !examples::interrupted()) step();
//   if (examples::interrupted()) return examples::interrupted_exit_code();

#include <atomic>
#include <csignal>

#include "partial_files.hpp"

namespace examples {

namespace detail {
// Atomic: the handler may run on any thread.
inline std::atomic<int> interrupting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
}  // namespace detail

inline void watch_interrupts() {
  const auto note = [](int signal) {
    if (detail::interrupting_signal.exchange(signal) == 0) return;
    remove_partial_files();
    std::signal(signal, SIG_DFL);
    raise(signal);  // It is blocked here, and ends the process when the handler returns.
  };
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

inline bool interrupted() {
  return detail::interrupting_signal.load(std::memory_order_relaxed) != 0;
}

/// What a shell reports for a program that the signal ended: 130 for Ctrl-C.
inline int interrupted_exit_code() {
  return 128 + detail::interrupting_signal;
}

}  // namespace examples
