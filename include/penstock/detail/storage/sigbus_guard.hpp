// SPDX-License-Identifier: Apache-2.0
#pragma once

// SigbusGuard: reading a page that a mapped file has lost (it was truncated, or its device failed)
// ends a process with SIGBUS. Here it is zeros in place of the page, and a mark on the range that
// was watched; MappedFile watches its range, and turns the mark into an error.
//
// This is the one piece of global state in penstock's headers (promise P8): what a signal does is a
// property of the process, so the handler and the list of ranges are, too. They do not get into
// anybody's way:
//  - The handler is installed with the first range, once for each binary that has a copy of this
//    header, and stays. The copies call each other, the youngest first.
//  - A SIGBUS that is not about a watched range goes to the handler that was there before, with
//    its flags and mask; where there was none the process ends as it would have, core dump
//    included.
//  - A program that installs a handler later keeps it, and passes on what it does not know:
//    sigaction(SIGBUS, &mine, &before), and in mine before.sa_sigaction(signal, info, context). One
//    that does not pass it on ends as if this guard were not there.
//  - A thread that blocks SIGBUS is killed by the access whatever handlers there are, so threads
//    that fill batches unblock it.

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/detail/storage/watched_ranges.hpp>
#include <span>

namespace penstock::detail {

inline std::size_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

class SigbusGuard {
 public:
  /// From here on lost pages of `pages`, a mapping, read as zeros. May be called by any thread.
  static WatchedRange& watch(std::span<const std::byte> pages) {
    const std::lock_guard lock(mutex_);
    if (!installed_.load(std::memory_order_relaxed)) install();
    const auto begin = reinterpret_cast<std::uintptr_t>(pages.data());
    return ranges_.add(begin, begin + pages.size());
  }

  /// Before the mapping goes away.
  static void forget(WatchedRange& range) noexcept {
    const std::lock_guard lock(mutex_);
    ranges_.remove(range);
  }

 private:
  static void install() noexcept {
    page_bytes_ = page_bytes();
    stay_loaded();
    struct sigaction action {};
    action.sa_sigaction = &SigbusGuard::handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigset_t sigbus, mask;
    sigemptyset(&sigbus);
    sigaddset(&sigbus, SIGBUS);
    // This thread may not come into the handler before it knows who was there before.
    ::pthread_sigmask(SIG_BLOCK, &sigbus, &mask);
    ::sigaction(SIGBUS, &action, &before_);
    installed_.store(true, std::memory_order_release);
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  }

  /// The shared library that this code is in may not be unloaded: the signal would still come here.
  static void stay_loaded() noexcept {
    Dl_info self{};
    if (::dladdr(reinterpret_cast<void*>(&SigbusGuard::handle), &self) != 0)
      ::dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }

  // ---- In the handler: async-signal-safe ------------------------------------------------------

  static void handle(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    const bool bad_access = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
    if (!installed_.load(std::memory_order_acquire)) {
      if (!bad_access) ::raise(signal);  // It comes again, until install() is through.
    } else if (info->si_code != BUS_ADRERR ||
               !replace_page(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
      pass_on(signal, info, context, bad_access);
    }
    errno = error;
  }

  /// Puts zeros in the place of the page, if it is of a watched range.
  static bool replace_page(std::uintptr_t address) noexcept {
    const std::uintptr_t page = address / page_bytes_ * page_bytes_;
    WatchedRange* range = ranges_.find(address);
    if (range == nullptr) return false;
    range->lose(page);
    // The bare system call: ThreadSanitizer takes mmap() for a write that races with readers.
    return ::syscall(SYS_mmap, page, page_bytes_, PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1L, 0L) != -1;
  }

  static void pass_on(int signal, siginfo_t* info, void* context, bool bad_access) {
    const bool handled = before_.sa_handler != SIG_DFL && before_.sa_handler != SIG_IGN;
    if (!handled && before_.sa_handler == SIG_IGN && !bad_access) return;
    if (!handled || (static_cast<unsigned>(before_.sa_flags) & SA_RESETHAND) != 0)
      ::signal(signal, SIG_DFL);
    if (!handled) {
      // A bad access is made again on return, and ends the process with the right core dump.
      if (!bad_access) ::raise(signal);
      return;
    }
    ::pthread_sigmask(SIG_BLOCK, &before_.sa_mask, nullptr);  // Until this handler returns.
    if ((before_.sa_flags & SA_SIGINFO) != 0)
      before_.sa_sigaction(signal, info, context);
    else
      before_.sa_handler(signal);
  }

  static inline std::mutex mutex_;  // of those who watch and forget; the handler takes no lock
  static inline WatchedRanges ranges_;
  static inline std::size_t page_bytes_ = 0;
  static inline struct sigaction before_ {};
  static inline std::atomic<bool> installed_{false};
};

/// A thread that reads mapped files may not block SIGBUS.
inline void unblock_sigbus() noexcept {
  sigset_t sigbus;
  sigemptyset(&sigbus);
  sigaddset(&sigbus, SIGBUS);
  ::pthread_sigmask(SIG_UNBLOCK, &sigbus, nullptr);
}

}  // namespace penstock::detail
