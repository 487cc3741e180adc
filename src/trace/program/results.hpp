// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes the results of a recording: the views, the report, the findings.

#include <filesystem>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::program {

struct ResultOptions {
  std::string step;  ///< name of the range that is one step; empty: it is found automatically
  double samples_per_step = 0;  ///< 0: unknown
  /// The bandwidth that the machine's bus reaches, in GB/s; 0: unknown.
  double host_to_device = 0, device_to_host = 0;
  double gap = 2;  ///< per cent of a step; a shorter gap is not a finding
  std::vector<Rule> fail_on;
  bool quiet = false;  ///< prints nothing on standard output
};

/// Writes trace.json, trace.html, report.txt, report.json and findings.json into the directory,
/// which it makes, and prints the report and the findings. Returns true if there is a finding of
/// `fail_on`. Throws std::system_error.
bool write_results(const Timeline& timeline, const std::filesystem::path& directory,
                   const ResultOptions& options);

/// Parses "pageable-copy,gap" or "any". Throws std::invalid_argument with the list of rules for any
/// other word.
std::vector<Rule> parse_rules(const std::string& text);

}  // namespace penstock::trace::program
