// SPDX-License-Identifier: Apache-2.0
#pragma once

// While one lives, this process cannot start another thread: the stacks of new threads are larger
// than the address space that is left to it.
//
//   const NoMoreThreads no_more_threads;
//   CHECK_THROWS_AS(std::thread([] {}), std::system_error);

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

#include "support/catch.hpp"

namespace penstock::test {

/// Not under the sanitizers, which need address space as they go.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    REQUIRE(getrlimit(RLIMIT_AS, &limit_) == 0);
    REQUIRE(pthread_getattr_default_np(&attributes_) == 0);
    rlimit less = limit_;
    less.rlim_cur = used_now() + kLeft;
    set(less, 2 * kLeft);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  ~NoMoreThreads() {
    std::size_t stack = 0;
    pthread_attr_getstacksize(&attributes_, &stack);
    set(limit_, stack);
    pthread_attr_destroy(&attributes_);
  }

 private:
  static constexpr std::size_t kLeft = 128 << 20;

  static std::size_t used_now() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

  static void set(const rlimit& limit, std::size_t stack) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    setrlimit(RLIMIT_AS, &limit);
  }

  rlimit limit_{};
  pthread_attr_t attributes_{};
};

}  // namespace penstock::test
