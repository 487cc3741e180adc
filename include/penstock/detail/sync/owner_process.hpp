// SPDX-License-Identifier: Apache-2.0
#pragma once

// OwnerProcess: whether this process constructed an object. A forked child has a copy of every
// object, but no other threads, no CUDA, and locks in any state: there, a destructor must not join,
// lock or free.

#include <pthread.h>

#include <atomic>
#include <type_traits>
#include <utility>

namespace penstock::detail {

/// How many forks lie between this process and the first one. Counted by a handler of
/// pthread_atfork, so that asking costs a load and not a system call.
class ForkCount {
 public:
  static unsigned now() noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  static void count_child() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }

  static inline std::atomic<unsigned> count_{0};
  static inline int registered_ = ::pthread_atfork(nullptr, nullptr, &count_child);
};

class OwnerProcess {
 public:
  bool is_this() const noexcept { return ForkCount::now() == forks_; }

 private:
  unsigned forks_ = ForkCount::now();
};

/// Never destroyed. For what a forked child has to leave as it is.
template <class T>
void leak(T&& object) {
  new std::remove_reference_t<T>(std::forward<T>(object));
}

}  // namespace penstock::detail
