// SPDX-License-Identifier: Apache-2.0
#pragma once

// PageCacheLook: whether it is worth while to ask the page cache before a read is queued.
// open_if_cached(): the same for a file's name.

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <penstock/detail/open_file.hpp>
#include <penstock/version.hpp>

#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif

namespace penstock::inline PENSTOCK_ABI::detail {

/// What is in the page cache is read at once. Where it is not, the question costs a system call
/// more: so behind some reads that were not there, only one in 16 is asked for. And preadv2, by
/// which one asks, costs more than pread: so behind many that were there, the others are read by
/// pread, which waits for the disk if one is not there.
class PageCacheLook {
 public:
  /// Another file may be on a file system that can answer.
  void begin_file() noexcept { is_possible_ = true; }
  bool is_worth_it() noexcept {
    if (!is_possible_) return false;
    return missed_ < 4 || is_turn();
  }
  /// Whether to ask, in place of just reading.
  bool asks() noexcept { return !is_sure() || is_turn(); }
  bool is_sure() const noexcept { return is_possible_ && found_ >= kMany; }
  void found(bool was_there) noexcept {
    missed_ = was_there ? 0 : missed_ + 1;
    found_ = was_there ? found_ + 1 : 0;
  }
  /// The file system cannot answer.
  void not_possible() noexcept { is_possible_ = false; }

 private:
  static constexpr std::uint64_t kMany = 1024;

  bool is_turn() noexcept { return ++left_out_ % 16 == 0; }

  bool is_possible_ = true;
  std::uint64_t missed_ = 0;  // since the last one that was there
  std::uint64_t found_ = 0;   // since the last one that was not
  unsigned left_out_ = 0;
};

/// Opens a file if the system knows its name without asking the disk. Else it is not open, and
/// errno says why: EAGAIN, or ENOSYS where the system cannot answer.
inline OpenFile open_if_cached(const char* path) {
#if defined(RESOLVE_CACHED) && defined(__NR_openat2)
  open_how how{};
  how.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
  how.resolve = RESOLVE_CACHED;
  return OpenFile::of(static_cast<int>(::syscall(__NR_openat2, AT_FDCWD, path, &how, sizeof how)));
#else
  static_cast<void>(path);
  errno = ENOSYS;
  return {};
#endif
}

}  // namespace penstock::detail
