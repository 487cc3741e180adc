// SPDX-License-Identifier: Apache-2.0

// penstock_races right|wrong [scenario]
//
// Runs each scenario of races.hpp, or one, in a process of its own, so that none sees the threads
// or the memory of another. "right": ThreadSanitizer may report nothing. "wrong": it has to report
// a data race in each, but for those that say why it cannot; these it may not report. There must be
// 100 right ones, and 60 wrong ones that are reported.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>

#include "races.hpp"

namespace {

constexpr int kQuiet = 0, kReported = 3, kFailed = 4;
constexpr unsigned kSeconds = 60;  // until a scenario that hangs is ended
constexpr int kRight = 100, kReportedWrong = 60;

volatile int reports = 0;

int run(const races::Scenario& scenario, races::Version version) {
  alarm(kSeconds);
  try {
    scenario.run(version);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", scenario.name, error.what());
    if (reports == 0) return kFailed;
  }
  return reports == 0 ? kQuiet : kReported;
}

/// The result of the scenario in a child process; the parent never calls CUDA.
int run_alone(const races::Scenario& scenario, races::Version version) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(run(scenario, version));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return kFailed;
  return WEXITSTATUS(status);
}

}  // namespace

/// ThreadSanitizer calls it for each report, on any thread: a race in here would never end.
extern "C" void __tsan_on_report(void*);  // NOLINT(bugprone-reserved-identifier)
extern "C" [[gnu::no_sanitize_thread]] void __tsan_on_report(void*) {
  reports = reports + 1;
}

int main(int argc, char** argv) {
  const std::string_view wanted = argc >= 2 ? argv[1] : "", only = argc >= 3 ? argv[2] : "";
  if (argc < 2 || argc > 3 || (wanted != "right" && wanted != "wrong")) {
    std::fputs("usage: penstock_races right|wrong [scenario]\n", stderr);
    return 2;
  }
  const races::Version version = wanted == "right" ? races::Version::right : races::Version::wrong;
  int ran = 0, unseen = 0, unexpected = 0;
  for (const auto* scenarios : {&races::host_races, &races::stream_races, &races::ended_streams,
                                &races::ordered_memory, &races::explicit_graphs, &races::pipelines,
                                &races::areas, &races::mistakes, &races::primitives}) {
    for (const races::Scenario& scenario : *scenarios) {
      if (!only.empty() && only != scenario.name) continue;
      ++ran;
      const bool hidden = !races::is_right(version) && scenario.unseen != nullptr;
      if (hidden) ++unseen;
      const int expected = races::is_right(version) || hidden ? kQuiet : kReported;
      const int result = run_alone(scenario, version);
      if (result == expected) continue;
      ++unexpected;
      std::printf("%s %s: %s\n", scenario.name, argv[1],
                  result == kQuiet      ? "no report"
                  : result == kReported ? "ThreadSanitizer reports a data race"
                                        : "it failed, or ended too early or too late");
    }
  }
  std::printf("%d scenarios, %d that cannot be seen, %d not as expected\n", ran, unseen,
              unexpected);
  const int least = races::is_right(version) ? kRight : kReportedWrong;
  if (only.empty() && ran - unseen < least) {
    std::printf("there are to be %d\n", least);
    return 1;
  }
  return ran > 0 && unexpected == 0 ? 0 : 1;
}
