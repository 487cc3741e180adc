// SPDX-License-Identifier: Apache-2.0
#pragma once

// penstock-trace merge: the recordings of a job's ranks, one beside the other.

#include <filesystem>
#include <string>
#include <vector>

namespace penstock::trace::program {

struct MergeOptions {
  std::vector<std::string> places;  ///< recordings, and directories that have some in them
  std::filesystem::path directory;  ///< to write to
  std::string step;                 ///< as in ResultOptions
  double samples_per_step = 0;      ///< of one rank
  bool quiet = false;
};

/// Writes ranks.txt, ranks.json and ranks.html, and prints the first. What cannot be used is told
/// on the standard error and in all three. Throws std::runtime_error where there is nothing to put
/// together, or no telling what belongs together.
void merge(const MergeOptions& options);

}  // namespace penstock::trace::program
