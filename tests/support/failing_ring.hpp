// SPDX-License-Identifier: Apache-2.0
#pragma once

// While one lives, the io_uring of its thread is a bad one: what the plan says becomes of the
// results that the kernel writes, and of the system calls.
//
//   FailingRing ring;
//   ring.result = [](int result) { return -EIO; };
//
// It puts its own syscall() in place of the C library's. Include it in one file of a program.

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace penstock::test {

class FailingRing {
 public:
  FailingRing() { only_ = this; }
  FailingRing(const FailingRing&) = delete;
  FailingRing& operator=(const FailingRing&) = delete;
  ~FailingRing() { only_ = nullptr; }
  /// nullptr: there is none.
  static FailingRing* of_this_thread() { return only_; }

  /// What becomes of the result of a request; it may be as it was.
  std::function<int(int)> result = {};
  /// The error of a call of io_uring_setup; 0: the kernel does it.
  std::function<int()> setup = {};
  /// The error of a call of io_uring_enter with so many new entries; 0: the kernel does it.
  std::function<int(unsigned)> enter = {};

  long call(long number, long (*next)(long, ...), long a, long b, long c, long d, long e, long f) {
    const int error = number == __NR_io_uring_setup && setup   ? setup()
                      : number == __NR_io_uring_enter && enter ? enter(static_cast<unsigned>(b))
                                                               : 0;
    if (error != 0) {
      errno = error;
      return -1;
    }
    const long returned = next(number, a, b, c, d, e, f);
    if (number == __NR_io_uring_setup && returned >= 0) {
      offsets_ = reinterpret_cast<const io_uring_params*>(b)->cq_off;
      ring_ = nullptr;
      seen_ = 0;
    }
    if (number == __NR_io_uring_enter && result) change_results();
    return returned;
  }

 private:
  static inline thread_local FailingRing* only_ = nullptr;

  /// Of the results that are new since the last call.
  void change_results() {
    if (ring_ == nullptr) ring_ = mapped_ring();
    if (ring_ == nullptr) return;
    const auto number = [this](std::uint32_t offset) {
      return reinterpret_cast<std::uint32_t*>(ring_ + offset);
    };
    const std::uint32_t mask = *number(offsets_.ring_mask);
    auto* const results = reinterpret_cast<io_uring_cqe*>(ring_ + offsets_.cqes);
    const std::uint32_t end =
        std::atomic_ref(*number(offsets_.tail)).load(std::memory_order_acquire);
    for (; seen_ != end; ++seen_) results[seen_ & mask].res = result(results[seen_ & mask].res);
  }

  /// The process has one ring.
  static char* mapped_ring() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      std::uintptr_t begin = 0, end = 0, offset = 0;
      char dash = 0;
      std::string rights;
      std::istringstream words(line);
      words >> std::hex >> begin >> dash >> end >> rights >> offset;
      if (line.find("[io_uring]") != std::string::npos && offset == IORING_OFF_SQ_RING)
        return reinterpret_cast<char*>(begin);
    }
    return nullptr;
  }

  io_cqring_offsets offsets_{};
  char* ring_ = nullptr;
  std::uint32_t seen_ = 0;
};

}  // namespace penstock::test

extern "C" long syscall(long number, ...) noexcept {
  using Function = long(long, ...);
  static auto* const next = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "syscall"));
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  auto* const ring = penstock::test::FailingRing::of_this_thread();
  const auto [a, b, c, d, e, f] = arguments;
  return ring == nullptr ? next(number, a, b, c, d, e, f)
                         : ring->call(number, next, a, b, c, d, e, f);
}
