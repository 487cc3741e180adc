// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ctrl-C, SIGTERM, or SIGHUP (the terminal is closed) asks a program to end after the step that it
// is at, so that files are closed and threads joined. A second one ends it at once; files that were
// being written are removed.
//
//   penstock::programs::watch_interrupts();             // once, at the start of main
//   while (more && !penstock::programs::interrupted()) step();
//   if (penstock::programs::interrupted()) return penstock::programs::interrupted_exit_code();

#include <atomic>
#include <csignal>

#include "partial_files.hpp"

namespace penstock::programs {

namespace detail {
// Atomic: the handler may run on any thread.
inline std::atomic<int> interrupting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
}  // namespace detail

/// SIGHUP stays ignored where whoever started the program ignores it, as nohup does.
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

/// What a shell reports for a program that the signal ended: 130 for Ctrl-C.
inline int interrupted_exit_code() {
  return 128 + detail::interrupting_signal;
}

}  // namespace penstock::programs
