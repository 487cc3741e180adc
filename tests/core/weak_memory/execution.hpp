// SPDX-License-Identifier: Apache-2.0
#pragma once

// A machine for testing code with atomics: it runs a few threads one at a time, switches between
// them at any atomic operation, and lets a load return every value that the C++ memory model
// allows, not only the newest. What a processor does once in a month, and x86 never, happens here
// within a second, and again with the same seed.
//
//   explore([] {                       // many times, each with other choices
//     Atomic<int> flag{0};
//     Plain<int> data{0};              // not atomic: a race on it is found
//     Thread writer([&] { data = 1; flag.store(1, std::memory_order_release); });
//     if (flag.load(std::memory_order_acquire) == 1) expect(data == 1, "the data is there");
//     writer.join();
//   });
//
// The library's own headers run on it unchanged: see replace_std.hpp. What it leaves out: stores
// that overtake loads before them, modification orders that differ from the order of execution,
// and fences.

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace penstock::test::weak {

inline constexpr std::size_t kMostThreads = 8;

/// What has happened before: for each thread, how many of its operations.
struct VectorClock {
  std::array<std::uint32_t, kMostThreads> at{};

  void join(const VectorClock& other);
  bool has_seen(std::size_t thread, std::uint32_t time) const { return time <= at[thread]; }
};

enum class Access { read, write };

/// Who has read and written something, and when: in that thread's own time, 0 for never.
struct Accesses {
  std::array<std::uint32_t, kMostThreads> reads{};
  std::size_t writer = 0;
  std::uint32_t written = 0;
};

struct ExploreOptions {
  int executions = 2000;
  std::uint32_t first_seed = 1;
  std::size_t most_steps = 20'000;  ///< an execution that takes more is a livelock
};

/// Runs `body` again and again, as thread 0 of an execution with choices of its own. Fails the test
/// case at the first execution in which something is wrong, and says with which seed.
void explore(const std::function<void()>& body, ExploreOptions options = {});

/// Waits until every other thread waits for something: whoever should sleep does, and burns no
/// processor time.
void wait_until_others_wait();

/// The nth thread that is started from now on cannot be: std::system_error.
void fail_start(int nth);

/// Ends this execution, and the exploration, when `holds` is false.
void expect(bool holds, const char* what);

/// One run of a test's body. Its members are called by the threads in it.
class Execution {
 public:
  Execution(std::uint32_t seed, std::size_t most_steps);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// nullptr outside of explore().
  static Execution* current() { return current_; }

  /// What went wrong; empty: nothing.
  std::string run(const std::function<void()>& body);

  // ---- For threads in it

  std::size_t self() const { return running_; }
  VectorClock& clock();
  /// A new point in this thread's time.
  std::uint32_t tick() { return ++clock().at[running_]; }
  /// Ends the execution if it races with an earlier access.
  void note(Accesses& accesses, Access access);
  /// To whatever is at this address.
  Accesses& accesses_of(const void* address) { return by_address_[address]; }
  /// One of 0 ... count - 1.
  std::size_t choose(std::size_t count);
  /// True once in `often` times.
  bool once_in(std::size_t often) { return choose(often) == 0; }
  /// Another thread may go on here.
  void step();
  /// Another thread goes on here, if one can.
  void yield();
  /// Nothing goes on here until somebody calls wake(). With `timed` it may also be that nothing
  /// else can go on; then false.
  bool block(bool timed = false);
  void wake(std::size_t thread);
  std::size_t start(std::function<void()> body);
  void fail_start(int nth) { starts_until_failure_ = nth; }
  bool finished(std::size_t thread) const;
  void join(std::size_t thread);
  [[noreturn]] void fail(const std::string& what);

 private:
  enum class State { runnable, blocked, blocked_timed, finished };
  struct Fiber;

  void switch_to(std::size_t thread);
  void switch_away();
  [[noreturn]] static void enter();

  static Execution* current_;

  std::mt19937 random_;
  std::size_t switch_once_in_;
  std::size_t steps_left_;
  int starts_until_failure_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::map<const void*, Accesses> by_address_;
  std::size_t running_ = 0;
  ucontext_t outside_{};
  std::string failure_;
};

}  // namespace penstock::test::weak
