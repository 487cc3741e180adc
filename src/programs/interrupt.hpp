// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ctrl-C, SIGTERM, or SIGHUP (when the terminal closes) asks a program to end after its current
// step, so that files are closed and threads joined. A second signal ends it at once and removes
// partially written files.
//
//   penstock::programs::watch_interrupts();             // once, at the start of main
//   while (more && !penstock::programs::interrupted()) step();
//   if (penstock::programs::interrupted()) return penstock::programs::interrupted_exit_code();

#include <atomic>
#include <csignal>

#include "partial_files.hpp"

namespace penstock::programs {

namespace detail {
// It is atomic because the handler may run on any thread.
inline std::atomic<int> interrupting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
}  // namespace detail

/// SIGHUP stays ignored if the parent process ignores it, as nohup does.
inline void watch_interrupts() {
  const auto note = [](int signal) {
    if (detail::interrupting_signal.exchange(signal) == 0) return;
    remove_partial_files();
    std::signal(signal, SIG_DFL);
    raise(signal);  // It is blocked here, and ends the process when the handler returns.
  };
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
  if (std::signal(SIGHUP, note) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

inline bool interrupted() {
  return detail::interrupting_signal.load(std::memory_order_relaxed) != 0;
}

/// Returns the status that a shell reports for a program that the signal ended: 130 for Ctrl-C.
inline int interrupted_exit_code() {
  return 128 + detail::interrupting_signal;
}

}  // namespace penstock::programs
