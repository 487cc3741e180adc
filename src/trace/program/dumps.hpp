// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dumps: what penstock-trace --last does while the program runs: it asks the processes of the run
// for dumps, and makes reports of those that they have written.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "results.hpp"

namespace penstock::trace::program {

struct DumpOptions {
  std::chrono::nanoseconds last{0};  ///< 0: there are no dumps
  int signal = 0;                    ///< to this process or to a recorded one
  std::string file;                  ///< that asks by being there; empty: none; as expand() has it
};

/// "30s", "500ms", "2min", "1h". Throws std::invalid_argument.
std::chrono::nanoseconds parse_time(const std::string& text);
/// "USR2", "SIGUSR2", "RTMIN+3". Throws std::invalid_argument.
int parse_signal(const std::string& text);

/// Of one run. What goes wrong is told on the standard error, and the run goes on.
class Dumps {
 public:
  Dumps(DumpOptions options, ResultOptions results);

  /// The program runs, and its processes write into the directory.
  void begin(const std::filesystem::path& directory, const std::filesystem::path& file);
  /// Asks each process that records.
  void ask(const std::string& cause);
  /// Looks for the file that asks, and makes the report of a dump that was written: one at a time,
  /// in a process of its own with little priority. Does not wait.
  void look();
  /// The program has ended: waits for all that is left to do.
  void end();

  const DumpOptions& options() const { return options_; }
  int count() const { return count_; }
  /// A dump had a finding of ResultOptions::fail_on.
  bool found() const { return found_; }

 private:
  void look_for_file();
  void leave_file(const std::string& why);
  void start_next_report();
  void start_report(const std::filesystem::path& recording);
  void end_report(int status);

  const DumpOptions options_;
  ResultOptions results_;
  std::filesystem::path directory_, file_;
  std::set<std::filesystem::path> refused_;  // of which no report could be begun
  std::filesystem::path reported_;           // directory of the report that is being made
  ::pid_t reporter_ = 0;                     // 0: none is
  int requests_ = 0, count_ = 0;
  bool found_ = false;
};

}  // namespace penstock::trace::program
