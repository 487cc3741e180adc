// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ctrl-C (or SIGTERM) asks the program to end behind the record that it is at. A second one ends it
// at once: a partial pack may be left anywhere.

#include <atomic>
#include <csignal>

namespace pack {

inline std::atomic<int> interrupting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

inline void watch_interrupts() {
  const auto note = [](int signal) {
    interrupting_signal = signal;
    std::signal(signal, SIG_DFL);
  };
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

inline bool interrupted() {
  return interrupting_signal != 0;
}

/// As a shell reports it: 130 for Ctrl-C.
inline int interrupted_exit_code() {
  return 128 + interrupting_signal;
}

}  // namespace pack
