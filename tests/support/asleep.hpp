// SPDX-License-Identifier: Apache-2.0
#pragma once

// To know that a thread waits inside a call, and not before it: the thread says that the call comes
// next, with nothing in between that could block, and then it sleeps.
//
//   std::thread waiting([&] { waiter.enter(); prefetcher.next(stream); });
//   waiter.wait_until_asleep();

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

namespace penstock::test {

class Waiter {
 public:
  /// On the thread that is about to make the call.
  void enter() { thread_ = static_cast<int>(::syscall(SYS_gettid)); }

  /// Returns when the thread has entered, and was asleep at a hundred looks. One is not enough: a
  /// thread also sleeps, for a short time, for a lock of the allocator or of ThreadSanitizer. They
  /// need not be in a row: a thread that polls is awake now and then.
  void wait_until_asleep() const {
    for (int asleep = 0; asleep < 100; std::this_thread::yield())
      if (thread_ != 0 && state() == 'S') ++asleep;
  }

 private:
  /// As the system tells it: R is running, S sleeping.
  char state() const {
    const std::string name = "/proc/self/task/" + std::to_string(thread_) + "/stat";
    std::FILE* const file = std::fopen(name.c_str(), "r");
    if (file == nullptr) return '?';
    char state = '?';
    if (std::fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = '?';
    std::fclose(file);
    return state;
  }

  std::atomic<int> thread_{0};
};

}  // namespace penstock::test
