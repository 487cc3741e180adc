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

  /// Returns when the thread has entered, and sleeps each time that it is looked at: for a short
  /// time a thread also sleeps for a lock of the allocator, or of ThreadSanitizer.
  void wait_until_asleep() const {
    for (int looks = 0; looks < 100; std::this_thread::yield())
      looks = thread_ != 0 && state() == 'S' ? looks + 1 : 0;
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
