// SPDX-License-Identifier: Apache-2.0
#pragma once

// SideBySide: a reporter that sets ours against the peer's, after Google Benchmark's own table.
//
// A benchmark is named <case>/<who>, where <who> is "ours" or the name of a peer. For each case in
// which both ran, the table gives the medians over the repetitions of this one run and their ratio.
// A benchmark program ends with `int main(int argc, char** argv) { return run_side_by_side(...);
// }`.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace penstock::benchmarks {

class SideBySide : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      // The medians, where there are repetitions; else the one run there was.
      const bool is_median = run.aggregate_name == "median";
      if (run.error_occurred || (run.run_type == Run::RT_Aggregate && !is_median)) continue;
      const std::string& name = run.run_name.function_name;
      const std::size_t slash = name.rfind('/');
      if (slash == std::string::npos) continue;
      const std::string which = name.substr(0, slash) + ' ' + run.run_name.threads;
      times_[which][name.substr(slash + 1)] = run.GetAdjustedRealTime();
      unit_ = benchmark::GetTimeUnitString(run.time_unit);
    }
  }

  void Finalize() override {
    ConsoleReporter::Finalize();
    for (const auto& [which, by_who] : times_) {
      const auto ours = by_who.find("ours");
      if (ours == by_who.end()) continue;
      for (const auto& [who, time] : by_who)
        if (who != "ours") print(which, ours->second, who, time);
    }
  }

 private:
  void print(const std::string& which, double ours, const std::string& who, double theirs) const {
    std::printf("%-44s ours %10.1f %s   %s %10.1f %s   ours/%s %.2f\n", which.c_str(), ours, unit_,
                who.c_str(), theirs, unit_, who.c_str(), ours / theirs);
  }

  std::map<std::string, std::map<std::string, double>> times_;
  const char* unit_ = "";
};

/// The main function of a benchmark program.
inline int run_side_by_side(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  SideBySide reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return 0;
}

}  // namespace penstock::benchmarks
