// SPDX-License-Identifier: Apache-2.0
#pragma once

// penstock-trace merge: compares the recordings of a job's ranks.

#include <filesystem>
#include <penstock/version.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::program {

struct MergeOptions {
  std::vector<std::string> places;  ///< recordings, and directories that contain some
  std::filesystem::path directory;  ///< the output directory
  std::string step;                 ///< as in ResultOptions
  double samples_per_step = 0;      ///< for one rank
  bool quiet = false;
};

/// Writes ranks.txt, ranks.json and ranks.html, and prints the first. Problems with single
/// recordings are reported on standard error and in all three files. Throws std::runtime_error if
/// there is nothing to merge, or if it is not clear which recordings belong together.
void merge(const MergeOptions& options);

}  // namespace penstock::trace::program
