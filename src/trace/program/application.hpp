// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs the traced program as a child process: starts it with the library injected, passes signals
// on, and waits for its end.

#include <sys/types.h>

#include <filesystem>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "dumps.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::program {

struct ApplicationOptions {
  std::vector<std::string> command;  ///< not empty
  std::filesystem::path library;     ///< the library to inject
  /// The directory of the recordings: %h is the machine's name, %p the process's number, %r its
  /// rank.
  std::string directory;
  std::size_t max_events = 0;
  bool capture_range = false, whole_graphs = false;
  DumpOptions dumps;
};

/// Thrown if the program could not be started.
struct NotStarted : std::runtime_error {
  NotStarted(const std::string& what, int code) : std::runtime_error(what), exit_code(code) {}
  int exit_code;  ///< like a shell: 127 no such program, 126 it cannot be executed; else 1
};

struct Ended {
  int exit_code = 0;                ///< 128 + signal if a signal ended it
  int signal = 0;                   ///< 0: none
  std::filesystem::path directory;  ///< the directory with recordings; empty: nothing was recorded
  bool made_directory = false;      ///< it did not exist before
};

/// Blocks until the program ends. Signals that a process sends to this process reach the program
/// once: without a terminal, the program has a process group of its own. (The terminal sends Ctrl-C
/// to both.) The signal that requests dumps is not passed on. Throws NotStarted and
/// std::system_error.
Ended run(const ApplicationOptions& options, Dumps& dumps);

/// Removes the directory if it is empty and did not exist before.
void remove_if_unused(const Ended& ended);

/// Replaces "%h" and "%r" by the values of this machine and process, and "%p" by `process`. Without
/// a rank, "-%r" becomes nothing. "%%" becomes "%".
std::string expand(const std::string& text, ::pid_t process);

}  // namespace penstock::trace::program
