// SPDX-License-Identifier: Apache-2.0
#pragma once

// The program that is traced, as a child process: started with the library injected, signals passed
// on, its end awaited.

#include <sys/types.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "dumps.hpp"

namespace penstock::trace::program {

struct ApplicationOptions {
  std::vector<std::string> command;  ///< not empty
  std::filesystem::path library;     ///< to inject
  /// Of the recordings; %h is the machine's name, %p the process's number, %r its rank.
  std::string directory;
  std::size_t max_events = 0;
  bool capture_range = false, whole_graphs = false;
  DumpOptions dumps;
};

/// The program could not be started.
struct NotStarted : std::runtime_error {
  NotStarted(const std::string& what, int code) : std::runtime_error(what), exit_code(code) {}
  int exit_code;  ///< as a shell has it: 127 no such program, 126 it cannot be executed; 1 else
};

struct Ended {
  int exit_code = 0;                ///< 128 + signal when a signal ended it
  int signal = 0;                   ///< 0: none did
  std::filesystem::path directory;  ///< is there, empty where nothing was recorded
  bool made_directory = false;      ///< it was not there before
};

/// Blocks until the program ends. Signals that are sent to this process (by kill; not Ctrl-C, which
/// the terminal sends to both) go to it, once: where there is no terminal it has a process group of
/// its own. The signal that asks for dumps stays here. Throws NotStarted, std::system_error.
Ended run(const ApplicationOptions& options, Dumps& dumps);

/// Removes the directory where it is empty, unless it was there before.
void remove_if_unused(const Ended& ended);

/// "%h" and "%r" as this machine and process have them, "%p" as given; "-%r" is nothing where there
/// is no rank. "%%" is "%".
std::string expand(const std::string& text, ::pid_t process);

}  // namespace penstock::trace::program
