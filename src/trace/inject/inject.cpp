// SPDX-License-Identifier: Apache-2.0

// The library that penstock-trace injects. The CUDA driver, or the emulated CUDA runtime, loads it
// at the program's first call (CUDA_INJECTION64_PATH) and calls InitializeInjection. NVTX loads it
// at the first range (NVTX_INJECTION64_PATH). It records until the process ends.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <penstock/trace/recording.hpp>
#include <penstock/trace/session.hpp>
#include <string>

#include "dumps.hpp"
#include "emulated_runtime.hpp"
#include "programs/output_file.hpp"
#include "salvage.hpp"
#include "settings.hpp"
#include "tell.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::inject {

namespace {

constexpr unsigned kPatience = 10;  // seconds for saving after a crash

const char* setting(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
}

/// It is never destroyed, because threads of the program may still be within CUDA calls.
struct Injection {
  const std::filesystem::path directory = setting(kDirectory);
  const ::pid_t process = ::getpid();
  std::unique_ptr<Session> session;

  std::filesystem::path file(const char* suffix) const {
    return directory / (std::to_string(process) + suffix);
  }
};

Injection*& injection() {
  static constinit Injection* the_injection = nullptr;
  return the_injection;
}

/// Writes the error to the file where penstock-trace finds it. A process that cannot write there
/// prints it.
void report_error(const Injection& here, const std::string& why) {
  try {
    std::filesystem::create_directories(here.directory);
    programs::write_file(here.file(kErrorSuffix), why + '\n', programs::can_be_made_again);
  } catch (const std::exception&) {
    tell("nothing is recorded, as user " + std::to_string(::geteuid()) + ": " + why);
  }
}

void write(const Injection& here, const Timeline& timeline) {
  std::filesystem::create_directories(here.directory);
  save(timeline, here.file(kRecordingSuffix));
}

/// Runs at the end of the process, but not in a forked child.
void finish() {
  Injection* const here = injection();
  if (here == nullptr || here->session == nullptr || here->process != ::getpid()) return;
  stop_dumps();
  try {
    write(*here, here->session->stop());
    here->session.reset();
  } catch (const std::exception& error) {
    report_error(*here, error.what());
  }
}

// ---- Fatal signals

/// Signals that end a process. A handler of the program has priority.
constexpr std::array kFatal{SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGSEGV, SIGBUS,
                            SIGABRT, SIGFPE,  SIGILL, SIGXCPU, SIGXFSZ};

void save_what_is_there() {
  try {
    if (const std::optional<Timeline> timeline = detail::salvage()) write(*injection(), *timeline);
  } catch (const std::exception& error) {
    report_error(*injection(), error.what());
  }
}

/// Runs in a copy of the process. If something that it needs is broken or locked there, an alarm
/// ends it.
[[noreturn]] void save_and_exit() {
  std::signal(SIGALRM, SIG_DFL);
  sigset_t alarm;
  ::sigemptyset(&alarm);
  ::sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(kPatience);
  save_what_is_there();
  ::_exit(0);
}

/// A copy of the process saves the recording. All signals are blocked meanwhile. Another thread
/// that crashes waits for the first one, which ends the process.
void on_fatal_signal(int signal) {
  static std::atomic<bool> begun{false};
  if (injection()->process == ::getpid()) {
    while (begun.exchange(true)) ::pause();
    const ::pid_t saver = ::_Fork();
    if (saver == 0) save_and_exit();
    while (saver > 0 && ::waitpid(saver, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

void watch_fatal_signals() {
  for (const int signal : kFatal) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0) continue;
    if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = &on_fatal_signal;
    ours.sa_flags = SA_ONSTACK;
    ::sigfillset(&ours.sa_mask);
    ::sigaction(signal, &ours, nullptr);
  }
}

// ---- Start

SessionOptions asked_options() {
  SessionOptions options;
  if (const char* const bound = setting(kMaxEvents))
    options.max_events = std::strtoull(bound, nullptr, 10);
  options.capture_range = setting(kCaptureRange) != nullptr;
  options.graph_nodes = setting(kWholeGraphs) == nullptr;
  if (const char* const last = setting(kLast))
    options.last = std::chrono::nanoseconds(std::strtoll(last, nullptr, 10));
  return options;
}

void start() {
  injection() = new Injection;
  const SessionOptions options = asked_options();
  try {
    injection()->session = std::make_unique<Session>(options);
  } catch (const std::exception& error) {
    report_error(*injection(), error.what());
    return;
  }
  std::atexit(finish);
  std::at_quick_exit(finish);
  const char* const signal = setting(kDumpSignal);
  if (options.last.count() != 0 && signal != nullptr)
    start_dumps(
        *injection()->session,
        {.directory = injection()->directory, .last = options.last, .signal = std::atoi(signal)});
  watch_fatal_signals();  // except the one that requests dumps
}

}  // namespace

}  // namespace penstock::trace::inject

extern "C" {

/// The emulated CUDA runtime calls this before InitializeInjection.
[[gnu::visibility("default")]] void penstock_attach_emulated_runtime(
    const penstock::trace::detail::EmulatedRuntime* runtime) {
  penstock::trace::detail::attach_emulated_runtime(runtime);
}

/// Returns 1 for success, even if nothing can be recorded, because the program should run anyway.
[[gnu::visibility("default")]] int InitializeInjection() {  // NOLINT(readability-identifier-naming)
  using namespace penstock::trace::inject;
  static std::atomic<bool> begun{false};
  if (setting(kDirectory) != nullptr && !begun.exchange(true)) start();
  return 1;
}

}  // extern "C"
