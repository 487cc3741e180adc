// SPDX-License-Identifier: Apache-2.0
#include "dumps.hpp"

#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <exception>
#include <fstream>
#include <iomanip>
#include <penstock/trace/recording.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "event_sink.hpp"
#include "ranges.hpp"
#include "settings.hpp"
#include "signal_names.hpp"
#include "tell.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::inject {

namespace {

namespace fs = std::filesystem;
using detail::name_of_signal;

constexpr long kLookEvery = 100'000'000;  // nanoseconds between two looks for requests
// This is limited so that a program that stalls again and again does not fill the disk.
constexpr int kMostForStalls = 16;

/// Collects the requests since the last dump. The functions that signal handlers and other threads
/// call neither wait nor allocate.
class Requests {
 public:
  Requests() { ::sem_init(&wake_, 0, 0); }

  void by_signal() {
    signal_ = true;
    ::sem_post(&wake_);
  }
  void by_stall() {
    stall_ = true;
    ::sem_post(&wake_);
  }
  void wake() { ::sem_post(&wake_); }

  /// Waits for a request, or until it is time to look for one.
  void await() {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += kLookEvery;
    if (until.tv_nsec >= 1'000'000'000) {
      until.tv_nsec -= 1'000'000'000;
      ++until.tv_sec;
    }
    while (::sem_clockwait(&wake_, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR) {
    }
    while (::sem_trywait(&wake_) == 0) {  // One dump answers all requests so far.
    }
  }

  bool take_signal() { return signal_.exchange(false); }
  bool stall() const { return stall_; }
  void take_stall() { stall_ = false; }

 private:
  sem_t wake_{};
  std::atomic<bool> signal_{false}, stall_{false};
};

/// It is never destroyed, because signals come until the process ends.
class Dumper {
 public:
  Dumper(Session& session, DumpOptions options)
      : session_(session), options_(std::move(options)), request_(read_request().number) {}

  void start();
  void stop();
  Requests& requests() { return requests_; }
  bool is_of_this_process() const { return process_ == ::getpid(); }

 private:
  struct Request {
    std::string number, cause;
  };

  void run();
  void take_over_signal();
  void watch_signal();
  Request read_request() const;
  std::string causes();
  bool stall_is_due(bool anyhow);
  void dump(const std::string& cause);
  fs::path next_file();

  Session& session_;
  const DumpOptions options_;
  const ::pid_t process_ = ::getpid();
  Requests requests_;
  std::atomic<bool> ends_{false};
  std::thread thread_;

  // members of the dumping thread
  bool watches_signal_ = false;
  std::string request_;  // number of the last request that was answered
  int dumps_ = 0, for_stalls_ = 0;
  Time last_for_stall_ = 0;
};

Dumper*& dumper() {
  static constinit Dumper* the_dumper = nullptr;
  return the_dumper;
}

// ---- The signal

/// A forked child has no thread that writes. There the signal has the effect that it would have
/// without a trace.
void on_dump_signal(int signal) {
  const int error = errno;
  if (dumper()->is_of_this_process()) {
    dumper()->requests().by_signal();
  } else {
    std::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  errno = error;
}

/// Takes over the signal, unless the program handles it.
void Dumper::take_over_signal() {
  struct sigaction now {};
  if (::sigaction(options_.signal, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) {
    tell("the program handles " + name_of_signal(options_.signal) +
         " itself, and goes on to: for a dump send it to penstock-trace, or take another one with "
         "--dump-signal");
    return;
  }
  struct sigaction ours {};
  ours.sa_handler = &on_dump_signal;
  ours.sa_flags = SA_ONSTACK | SA_RESTART;
  ::sigfillset(&ours.sa_mask);
  watches_signal_ = ::sigaction(options_.signal, &ours, nullptr) == 0;
}

void Dumper::watch_signal() {
  struct sigaction now {};
  if (!watches_signal_ || ::sigaction(options_.signal, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == &on_dump_signal) return;
  watches_signal_ = false;
  tell("the program has taken " + name_of_signal(options_.signal) +
       " for itself: for a dump send it to penstock-trace, or take another one with --dump-signal");
}

// ---- Requests

/// Returns an empty request if there is none.
Dumper::Request Dumper::read_request() const {
  Request request;
  std::ifstream file(options_.directory / kRequest);
  std::getline(file, request.number);
  std::getline(file, request.cause);
  return request;
}

/// Allows one dump for each kept period of time, so that together the dumps contain all stalls.
bool Dumper::stall_is_due(bool anyhow) {
  if (!requests_.stall()) return false;
  const Time now = detail::now();
  if (for_stalls_ == kMostForStalls && !anyhow) return false;
  if (for_stalls_ > 0 && now < last_for_stall_ + options_.last.count() && !anyhow) return false;
  requests_.take_stall();
  last_for_stall_ = now;
  if (for_stalls_ == kMostForStalls) return true;
  ++for_stalls_;
  if (for_stalls_ == kMostForStalls)
    tell("this is dump " + std::to_string(kMostForStalls) +
         " for a StallError, and the last one: further ones have to be asked for");
  return true;
}

/// Returns an empty string if there is no request.
std::string Dumper::causes() {
  std::string all;
  const auto add = [&](const std::string& cause) { all += (all.empty() ? "" : " and ") + cause; };
  if (requests_.take_signal()) add(name_of_signal(options_.signal));
  if (const Request request = read_request();
      !request.number.empty() && request.number != request_) {
    request_ = request.number;
    add(request.cause);
  }
  if (stall_is_due(!all.empty())) add("a StallError");
  return all;
}

// ---- The dumps

/// Returns a name such as "dump-20261123T071530Z-4711-2.recording".
fs::path Dumper::next_file() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  std::ostringstream name;
  name << kDumpPrefix << std::put_time(&parts, "%Y%m%dT%H%M%SZ") << '-' << process_ << '-'
       << ++dumps_ << kRecordingSuffix;
  return options_.directory / name.str();
}

void Dumper::dump(const std::string& cause) {
  try {
    Timeline timeline = session_.recent();
    if (timeline.end == 0) return tell("no dump for " + cause + ": no cudaProfilerStart until now");
    timeline.origin.excerpt += "; asked for by " + cause;
    fs::create_directories(options_.directory);
    save(timeline, next_file());
  } catch (const std::exception& error) {
    tell("no dump for " + cause + ": " + error.what());
  }
}

void Dumper::run() {
  while (!ends_) {
    requests_.await();
    watch_signal();
    if (const std::string cause = causes(); !cause.empty()) dump(cause);
  }
}

/// Starts the thread, which blocks all signals of the program.
void Dumper::start() {
  take_over_signal();
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "penstock dumps");
    run();
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Dumper::stop() {
  ends_ = true;
  requests_.wake();
  thread_.join();
}

}  // namespace

void start_dumps(Session& session, const DumpOptions& options) {
  dumper() = new Dumper(session, options);
  dumper()->start();
  detail::call_at_stalls(+[] {
    if (dumper()->is_of_this_process()) dumper()->requests().by_stall();
  });
}

void stop_dumps() {
  if (dumper() == nullptr) return;
  detail::call_at_stalls(nullptr);
  dumper()->stop();
}

}  // namespace penstock::trace::inject
