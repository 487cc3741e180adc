// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dumps: the work of penstock-trace --last while the program runs. It requests dumps from the
// processes of the run, and makes reports of the dumps that they have written.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <penstock/version.hpp>
#include <set>
#include <string>
#include <vector>

#include "results.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::program {

struct DumpOptions {
  std::chrono::nanoseconds last{0};  ///< 0: there are no dumps
  int signal = 0;                    ///< sent to this process or to a recorded one
  std::string file;  ///< a file whose existence requests a dump; empty: none; expand() was applied
};

/// Parses "30s", "500ms", "2min" or "1h". Throws std::invalid_argument.
std::chrono::nanoseconds parse_time(const std::string& text);
/// Parses "USR2", "SIGUSR2" or "RTMIN+3". Throws std::invalid_argument.
int parse_signal(const std::string& text);

/// The dumps of one run. Errors are printed on standard error, and the run continues.
class Dumps {
 public:
  Dumps(DumpOptions options, ResultOptions results);

  /// Call it when the program runs and its processes write into the directory.
  void begin(const std::filesystem::path& directory, const std::filesystem::path& file);
  /// Requests a dump from each process that records.
  void ask(const std::string& cause);
  /// Looks for the requesting file, and makes the report of a finished dump: one at a time, in a
  /// separate process with low priority. It does not wait.
  void look();
  /// The program has ended: waits for the remaining work.
  void end();

  const DumpOptions& options() const { return options_; }
  int count() const { return count_; }
  /// Whether a dump had a finding of ResultOptions::fail_on.
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
  std::set<std::filesystem::path> refused_;  // dumps whose report could not be started
  std::filesystem::path reported_;           // directory of the report in progress
  ::pid_t reporter_ = 0;                     // 0: there is none
  int requests_ = 0, count_ = 0;
  bool found_ = false;
};

}  // namespace penstock::trace::program
