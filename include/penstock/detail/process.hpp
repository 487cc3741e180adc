// SPDX-License-Identifier: Apache-2.0
#pragma once

// OwnerProcess: who made an object, after fork. A child process has a copy of every object, but
// none of the threads that work on it, no CUDA, and locks in whatever state they were in. What a
// destructor would join, lock or free there, it has to leave alone.

#include <unistd.h>

#include <type_traits>
#include <utility>

namespace penstock::detail {

class OwnerProcess {
 public:
  /// Costs a system call that does nothing.
  bool is_this() const noexcept { return ::getpid() == pid_; }

 private:
  ::pid_t pid_ = ::getpid();
};

/// Never destroyed. For what a forked child has to leave as it is.
template <class T>
void leak(T&& object) {
  new std::remove_reference_t<T>(std::forward<T>(object));
}

}  // namespace penstock::detail
