// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileSizeSignal: a write beyond the limit on file sizes (ulimit -f) ends the process by SIGXFSZ.
// While an object of this class exists, such a write of this thread returns an error (EFBIG)
// instead, as for a full disk. Other threads and the process's own handler do not change, because
// the process may be a user's program.

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
