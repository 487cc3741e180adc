// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadRing: the io_uring of a ReadQueue, for whichever thread and process uses it now; or why there
// is none.

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/storage/io_uring.hpp>
#include <penstock/detail/storage/read_slot.hpp>
#include <penstock/read_queue_options.hpp>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The result of a slot's request: as the system call's, but an error is a negative errno.
struct ReadResult {
  std::size_t slot;
  int result;
};

#if PENSTOCK_HAS_IO_URING

class ReadRing {
 public:
  /// Throws std::system_error if io_uring is asked for, and not there.
  ReadRing(std::size_t depth, ReadMethod method)
      : depth_(static_cast<unsigned>(depth)), method_(method) {
    make();
  }

  /// Makes another ring where the one before is that of another thread, or of the parent process.
  void own() {
    if (!ring_) return;
    if (thread_ == std::this_thread::get_id() && process_ == ::getpid()) return;
    ring_.reset();
    make();
  }

  bool is_there() const noexcept { return ring_.has_value(); }
  const std::string& why_not() const noexcept { return why_not_; }

  /// Passes a read to the kernel at once: on a virtual disk that is 1.1 times as fast as passing
  /// some together. Where the kernel does not take it, wait() does it again. The slot may not
  /// change until its result is there.
  void add_read(const ReadSlot& slot, std::size_t number) {
    const std::span<const ::iovec> pieces = slot.pieces();
    const bool is_one = pieces.size() == 1;
    io_uring_sqe& entry =
        ring_->add(is_one ? IORING_OP_READ : IORING_OP_READV, slot.descriptor, number);
    entry.off = slot.offset();
    entry.addr = is_one ? address_of(pieces.front().iov_base) : address_of(pieces.data());
    entry.len = static_cast<std::uint32_t>(is_one ? pieces.front().iov_len : pieces.size());
    ring_->enter(0);
  }
  void add_open(const ReadSlot& slot, std::size_t number) {
    io_uring_sqe& entry = ring_->add(IORING_OP_OPENAT, AT_FDCWD, number);
    entry.addr = address_of(slot.path.c_str());
    entry.open_flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
    ring_->enter(0);
  }

  /// Adds the results that are there to `results`, of which it waits for one. Returns false where
  /// the kernel takes no more requests: then there is no ring any more, and nothing in flight.
  bool wait(std::vector<ReadResult>& results) {
    while (results.empty()) {
      if (!ring_->enter(1)) return give_up();
      take(results);
    }
    return true;
  }

  /// Cancels all, and waits until nothing is in flight. Adds what had a result.
  void end_all(std::vector<ReadResult>& results) {
    if (!ring_) return;
    ring_->drop();
    take(results);
    if (ring_->held() == 0) return;
    for (unsigned i = 0; i < depth_; ++i)
      ring_->add(IORING_OP_ASYNC_CANCEL, -1, kCancellation).addr = i;
    while (ring_->held() > 0) {
      ring_->enter(1);
      take(results);
    }
    ring_->drop();
  }

 private:
  static constexpr std::uint64_t kCancellation = ~std::uint64_t{0};

  static std::uint64_t address_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
  }

  void make() {
    thread_ = std::this_thread::get_id();
    process_ = ::getpid();
    if (method_ == ReadMethod::pread) {
      why_not_ = "ReadQueueOptions::method is pread";
      return;
    }
    try {
      ring_.emplace(depth_);
    } catch (const std::system_error& error) {
      if (method_ == ReadMethod::io_uring) throw;
      why_not_ = error.what();
    }
  }
  bool give_up() {
    why_not_ = std::system_error(errno, std::generic_category(), "io_uring_enter").what();
    ring_.reset();
    return false;
  }
  void take(std::vector<ReadResult>& results) {
    ring_->take([&](std::uint64_t number, int result) {
      if (number != kCancellation) results.push_back({static_cast<std::size_t>(number), result});
    });
  }

  const unsigned depth_;
  const ReadMethod method_;
  std::optional<IoUring> ring_;
  std::string why_not_;
  std::thread::id thread_;  // whose ring it is
  ::pid_t process_ = 0;
};

#else

/// There is none.
class ReadRing {
 public:
  ReadRing(std::size_t, ReadMethod method) {
    if (method == ReadMethod::io_uring)
      throw std::system_error(ENOSYS, std::generic_category(), why_not_);
  }
  void own() {}
  static bool is_there() noexcept { return false; }
  const std::string& why_not() const noexcept { return why_not_; }
  void add_read(const ReadSlot&, std::size_t) {}
  void add_open(const ReadSlot&, std::size_t) {}
  static bool wait(std::vector<ReadResult>&) { return false; }
  void end_all(std::vector<ReadResult>&) {}

 private:
  std::string why_not_ = "it was compiled without <linux/io_uring.h> of Linux 5.6";
};

#endif

}  // namespace penstock::detail
