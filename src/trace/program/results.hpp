// SPDX-License-Identifier: Apache-2.0
#pragma once

// What penstock-trace makes of a recording: the views, the report, the findings.

#include <filesystem>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/timeline.hpp>
#include <string>
#include <vector>

namespace penstock::trace::program {

struct ResultOptions {
  std::string step;             ///< name of the range that is one step; empty: found
  double samples_per_step = 0;  ///< 0: unknown
  /// GB/s that the machine's bus reaches; 0: unknown.
  double host_to_device = 0, device_to_host = 0;
  double gap = 2;  ///< per cent of a step: a shorter one is no finding
  std::vector<Rule> fail_on;
  bool quiet = false;  ///< nothing on the standard output
};

/// Writes trace.json, trace.html, report.txt, report.json and findings.json into the directory,
/// which is made, and prints the report and the findings. True when there is a finding of
/// `fail_on`. Throws std::system_error.
bool write_results(const Timeline& timeline, const std::filesystem::path& directory,
                   const ResultOptions& options);

/// "pageable-copy,gap" or "any". Throws std::invalid_argument, which lists what there is, for any
/// word that is no rule.
std::vector<Rule> parse_rules(const std::string& text);

}  // namespace penstock::trace::program
