// SPDX-License-Identifier: Apache-2.0
#include "application.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "inject/settings.hpp"
#include "origin.hpp"
#include "programs/standard_streams.hpp"
#include "signal_names.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::program {

namespace {

constexpr std::array kPassedOn{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// While one exists, signals wait for next(), and signals for the program do not end this process.
class Signals {
 public:
  explicit Signals(int another) {
    // The parent process may ignore it; then no child would have a status.
    std::signal(SIGCHLD, SIG_DFL);
    ::sigemptyset(&awaited_);
    for (const int signal : kPassedOn) ::sigaddset(&awaited_, signal);
    ::sigaddset(&awaited_, SIGCHLD);
    if (another != 0) ::sigaddset(&awaited_, another);
    ::pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
  }
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Also call it in the child before it executes the program.
  void restore() const { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// Returns signal 0 if none came within this time.
  siginfo_t next(const timespec* time) const {
    siginfo_t info{};
    while (::sigtimedwait(&awaited_, &info, time) < 0) {
      if (errno == EAGAIN) return {};
      if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "sigtimedwait");
    }
    return info;
  }

 private:
  sigset_t awaited_{}, before_{};
};

void set(const char* variable, const std::string& value) {
  ::setenv(variable, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
}

void set_environment(const ApplicationOptions& options, const std::string& directory) {
  set("CUDA_INJECTION64_PATH", options.library);
  set("NVTX_INJECTION64_PATH", options.library);
  set(inject::kDirectory, directory);
  set(inject::kMaxEvents, std::to_string(options.max_events));
  if (options.capture_range) set(inject::kCaptureRange, "1");
  if (options.whole_graphs) set(inject::kWholeGraphs, "1");
  if (options.dumps.last.count() == 0) return;
  set(inject::kLast, std::to_string(options.dumps.last.count()));
  set(inject::kDumpSignal, std::to_string(options.dumps.signal));
}

/// The child's message before it executes the program, and after a failure.
struct Told {
  bool made_directory = false;  // It did not exist before.
  int error = 0;
  bool of_directory = false;
};

/// A launcher sends its signals to the process group of its child, and this process passes them on.
/// So the program gets a group of its own, and each signal reaches it once. It still ends with this
/// process. With a terminal this is not done, because a terminal lets only its foreground group
/// read.
void leave_group(::pid_t parent) {
  const int terminal = ::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (terminal >= 0) {
    ::close(terminal);
    return;
  }
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(EXIT_FAILURE);
}

/// Executes the program; returns only if that fails.
void become(const ApplicationOptions& options, const std::filesystem::path& directory) {
  set_environment(options, directory);
  std::vector<char*> arguments;
  for (const std::string& word : options.command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
}

[[noreturn]] void run_as_child(const ApplicationOptions& options, int pipe, ::pid_t parent) {
  leave_group(parent);
  programs::restore_file_size_signal();
  std::error_code error;
  const auto directory = std::filesystem::absolute(expand(options.directory, ::getpid()));
  Told told;
  told.made_directory = !std::filesystem::exists(directory, error);
  std::filesystem::create_directories(directory, error);
  told.error = error.value();
  told.of_directory = static_cast<bool>(error);
  bool is_told = ::write(pipe, &told, sizeof told) == sizeof told;
  if (is_told && !error) {
    become(options, directory);
    told.error = errno;
    is_told = ::write(pipe, &told, sizeof told) == sizeof told;
  }
  ::_exit(is_told ? 0 : EXIT_FAILURE);
}

/// Returns the child's last message: the pipe is closed when it executes the program.
Told hear(int pipe) {
  Told told;
  while (true) {
    Told more;
    const ::ssize_t bytes = ::read(pipe, &more, sizeof more);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof more) return told;
    told = more;
  }
}

NotStarted not_started(const ApplicationOptions& options, const Told& told,
                       const std::string& directory) {
  const std::string why = ": " + std::error_code(told.error, std::generic_category()).message();
  if (told.of_directory) return {"cannot make the directory " + directory + why, 1};
  return {"cannot run " + options.command.front() + why, told.error == ENOENT ? 127 : 126};
}

/// Passes signals on until the process has ended, and returns its status. The terminal's Ctrl-C
/// reaches the program directly, which may take a second one for "at once", so it is not passed on.
int wait_for(::pid_t process, const Signals& signals, Dumps& dumps) {
  const bool has_dumps = dumps.options().last.count() != 0;
  constexpr timespec kLookEvery{.tv_sec = 0, .tv_nsec = 100'000'000};
  while (true) {
    const siginfo_t info = signals.next(has_dumps ? &kLookEvery : nullptr);
    const bool was_sent = info.si_code <= 0;  // a process sent it, not the terminal
    if (has_dumps && info.si_signo == dumps.options().signal)
      dumps.ask(detail::name_of_signal(info.si_signo));
    else if (info.si_signo != 0 && info.si_signo != SIGCHLD && was_sent)
      ::kill(process, info.si_signo);
    if (has_dumps) dumps.look();
    int status = 0;
    const ::pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process) return status;
    if (ended < 0) throw std::system_error(errno, std::generic_category(), "waitpid");
  }
}

}  // namespace

std::string expand(const std::string& text, ::pid_t process) {
  const int rank = detail::this_place().rank;
  std::string expanded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "-%r") == 0 && rank < 0) {
      i += 2;
    } else if (text[i] != '%' || i + 1 == text.size()) {
      expanded += text[i];
    } else {
      switch (text[++i]) {
        case 'h':
          expanded += detail::this_host();
          break;
        case 'p':
          expanded += std::to_string(process);
          break;
        case 'r':
          if (rank >= 0) expanded += std::to_string(rank);
          break;
        case '%':
          expanded += '%';
          break;
        default:
          (expanded += '%') += text[i];
      }
    }
  }
  return expanded;
}

Ended run(const ApplicationOptions& options, Dumps& dumps) {
  const Signals signals(dumps.options().signal);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  const ::pid_t parent = ::getpid(), process = ::fork();
  if (process < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (process == 0) {
    signals.restore();
    run_as_child(options, ends[1], parent);
  }
  ::close(ends[1]);
  const Told told = hear(ends[0]);
  ::close(ends[0]);
  Ended ended;
  ended.made_directory = told.made_directory;
  ended.directory = expand(options.directory, process);
  dumps.begin(ended.directory, expand(options.dumps.file, process));
  const int status = wait_for(process, signals, dumps);
  if (told.error != 0) {
    remove_if_unused(ended);
    throw not_started(options, told, ended.directory);
  }
  ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  ended.exit_code = ended.signal != 0 ? 128 + ended.signal : WEXITSTATUS(status);
  return ended;
}

void remove_if_unused(const Ended& ended) {
  std::error_code not_empty;
  if (ended.made_directory && std::filesystem::is_directory(ended.directory, not_empty))
    std::filesystem::remove(ended.directory, not_empty);
}

}  // namespace penstock::trace::program
