// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileSizeSignal: a write beyond the limit on file sizes (ulimit -f) ends the process by SIGXFSZ.
// While one is alive, such a write of this thread is an error (EFBIG) like that of a full disk.
// Other threads and the process's own handler are left as they are, since the process may be a
// user's program.

#include <cerrno>
#include <csignal>
#include <ctime>

namespace penstock::programs {

class FileSizeSignal {
 public:
  FileSizeSignal() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  /// Keeps errno.
  ~FileSizeSignal() {
    const int error = errno;
    constexpr timespec at_once{.tv_sec = 0, .tv_nsec = 0};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  sigset_t signal_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace penstock::programs
