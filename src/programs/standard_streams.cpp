// SPDX-License-Identifier: Apache-2.0
#include "standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace penstock::programs {

namespace {

struct sigaction file_size_signal_before;

/// open() returns the lowest free number. The descriptors are closed again when this process
/// executes another program.
void open_what_is_closed() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // The descriptor has the opposite direction of its use, so using it fails.
    const int access = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    static_cast<void>(open("/dev/null", access | O_CLOEXEC));
  }
}

void ignore_file_size_signal() {
  sigaction(SIGXFSZ, nullptr, &file_size_signal_before);
  if (file_size_signal_before.sa_handler == SIG_DFL) std::signal(SIGXFSZ, SIG_IGN);
}

/// A network file system may report a full disk only at close.
bool is_written() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return false;
  const int copy = dup(STDOUT_FILENO);
  return copy < 0 || close(copy) == 0;
}

void check_output(int status, void*) {
  errno = 0;
  if (is_written()) return;
  const int error = errno;  // 0: an earlier write failed
  std::fprintf(stderr, "%s: the standard output cannot be written%s%s\n",
               program_invocation_short_name, error != 0 ? ": " : "",
               error != 0 ? std::strerror(error) : "");  // NOLINT(concurrency-mt-unsafe): at exit
  if (status == 0) _exit(EXIT_FAILURE);
}

const struct Begin {
  Begin() {
    open_what_is_closed();
    ignore_file_size_signal();
    on_exit(check_output, nullptr);
  }
} begin;

}  // namespace

void restore_file_size_signal() {
  sigaction(SIGXFSZ, &file_size_signal_before, nullptr);
}

}  // namespace penstock::programs
