// SPDX-License-Identifier: Apache-2.0
#pragma once

// While one lives, the thread that made it cannot start another one (or more than so many).
//
//   const NoMoreThreads no_more_threads;
//   CHECK_THROWS_AS(std::thread([] {}), std::system_error);
//
// Include it in one file of a program; not under the sanitizers, which have a pthread_create of
// their own.

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

namespace penstock::test {

inline thread_local int threads_allowed = -1;  // as many as there are

struct NoMoreThreads {
  explicit NoMoreThreads(int than = 0) { threads_allowed = than; }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  ~NoMoreThreads() { threads_allowed = -1; }
};

}  // namespace penstock::test

/// In place of the C library's, which it calls.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  if (penstock::test::threads_allowed == 0) return EAGAIN;
  if (penstock::test::threads_allowed > 0) --penstock::test::threads_allowed;
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}
