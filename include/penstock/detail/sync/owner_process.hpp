// SPDX-License-Identifier: Apache-2.0
#pragma once

// OwnerProcess: tells whether the current process constructed an object. A forked child has a copy
// of every object, but no other threads, no CUDA, and locks in any state. Therefore a destructor in
// the child must not join, lock or free.

#include <pthread.h>

#include <atomic>
#include <penstock/version.hpp>
#include <type_traits>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The number of forks between this process and the first one. A handler of pthread_atfork counts
/// them, so a query costs a load and not a system call.
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

/// Moves the object to memory that is never freed, so that it is never destroyed. A forked child
/// uses it for members that it must not touch.
template <class T>
void leak(T&& object) {
  new std::remove_reference_t<T>(std::forward<T>(object));
}

}  // namespace penstock::detail
