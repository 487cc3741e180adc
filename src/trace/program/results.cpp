// SPDX-License-Identifier: Apache-2.0
#include "results.hpp"

#include <algorithm>
#include <iostream>
#include <penstock/trace/report.hpp>
#include <penstock/trace/views.hpp>
#include <sstream>
#include <stdexcept>

#include "programs/output_file.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::program {

namespace {

template <class Content>
std::string json_of(const Content& content) {
  std::ostringstream text;
  write_json(content, text);
  return text.str();
}

std::string text_of(const Report& report, const std::vector<Finding>& findings) {
  std::ostringstream text;
  text << report << "\n\n";
  if (findings.empty()) text << "No findings.\n";
  for (const Finding& finding : findings) text << finding << '\n';
  return text.str();
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (int number = 0; number < kRules; ++number) rules.push_back(static_cast<Rule>(number));
  return rules;
}

[[noreturn]] void refuse(const std::string& word) {
  std::string known = "any";
  for (const Rule rule : all_rules()) (known += ", ") += to_string(rule);
  throw std::invalid_argument("no rule '" + word + "'; there are: " + known);
}

}  // namespace

bool write_results(const Timeline& timeline, const std::filesystem::path& directory,
                   const ResultOptions& options) {
  ReportOptions report_options;
  report_options.step = options.step;
  report_options.samples_per_step = options.samples_per_step;
  report_options.host_to_device = options.host_to_device * 1e9;
  report_options.device_to_host = options.device_to_host * 1e9;
  RuleOptions rule_options;
  rule_options.step = options.step;
  rule_options.gap = options.gap / 100;
  const Report report(timeline, report_options);
  const std::vector<Finding> findings = find(timeline, rule_options);

  std::filesystem::create_directories(directory);
  write_chrome_trace(timeline, directory / "trace.json");
  write_page(timeline, report, findings, directory / "trace.html");
  const std::string text = text_of(report, findings);
  const auto write = [&](const char* name, const std::string& content) {
    programs::write_file(directory / name, content, programs::can_be_made_again);
  };
  write("report.txt", text);
  write("report.json", json_of(report));
  write("findings.json", json_of(findings));
  if (!options.quiet) std::cout << text << std::flush;
  return std::any_of(options.fail_on.begin(), options.fail_on.end(),
                     [&](Rule rule) { return !none_of(findings, rule); });
}

std::vector<Rule> parse_rules(const std::string& text) {
  std::vector<Rule> asked;
  std::istringstream words(text + ',');  // An empty word at the end counts as a word.
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "any") {
      const std::vector<Rule> all = all_rules();
      asked.insert(asked.end(), all.begin(), all.end());
    } else if (const auto rule = rule_of(word)) {
      asked.push_back(*rule);
    } else {
      refuse(word);
    }
  }
  return asked;
}

}  // namespace penstock::trace::program
