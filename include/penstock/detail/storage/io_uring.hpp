// SPDX-License-Identifier: Apache-2.0
#pragma once

// IoUring: a pair of rings through which the kernel takes requests and returns their results, by
// the three system calls of io_uring. It is not there without <linux/io_uring.h>, on kernels before
// 5.6, and where a filter of system calls forbids it: containers often do.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <penstock/version.hpp>
#include <system_error>
#include <thread>

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
// The header of Linux 5.6 or newer: the feature came with the operations that are used here.
#if defined(IORING_FEAT_RW_CUR_POS) && defined(__NR_io_uring_setup)
#define PENSTOCK_HAS_IO_URING 1
#else
#define PENSTOCK_HAS_IO_URING 0
#endif

namespace penstock::inline PENSTOCK_ABI::detail {

#if PENSTOCK_HAS_IO_URING

/// Used by the thread that has made it: the kernel may refuse others.
class IoUring {
 public:
  /// `depth`: most requests that the caller has in flight. Throws std::system_error where the
  /// kernel gives none; its text says why.
  explicit IoUring(unsigned depth) {
    io_uring_params params{};
    number_ = set_up(depth, params);
    if (number_ < 0) fail("io_uring_setup");
    constexpr unsigned kNeeded =
        IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;
    try {
      if ((params.features & kNeeded) != kNeeded) errno = ENOSYS, fail("io_uring_setup");
      map(params);
    } catch (const std::system_error&) {
      close();
      throw;
    }
  }
  IoUring(const IoUring&) = delete;
  IoUring& operator=(const IoUring&) = delete;
  /// No request may be in flight. A child of fork() may call it.
  ~IoUring() { close(); }

  /// An entry for a request, with zeros. The caller has fewer requests in flight than `depth`, of
  /// which each needs one entry, and at most as many cancellations.
  io_uring_sqe& add(std::uint8_t operation, int descriptor, std::uint64_t user_data) {
    io_uring_sqe& entry = entries_[tail_ & entry_mask_];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = operation;
    entry.fd = descriptor;
    entry.user_data = user_data;
    entry_numbers_[tail_ & entry_mask_] = tail_ & entry_mask_;
    ++tail_;
    return entry;
  }

  /// Passes the entries to the kernel, and waits until at least `completions` results are there, of
  /// requests that are in flight. Not all may have been passed where the kernel wants its results
  /// to be taken first. Returns false where it takes none though it has none: errno says why.
  bool enter(unsigned completions) {
    std::atomic_ref(*kernel_tail_).store(tail_, std::memory_order_release);
    for (int refused = 0; true;) {
      const long taken = call(left(), completions);
      if (taken >= 0 && left() == 0) return true;
      if (taken >= 0 || errno == EINTR) continue;
      if (held() == 0) {
        if ((errno != EAGAIN && errno != EBUSY) || ++refused == 4) return false;
        std::this_thread::yield();  // It had no memory, which may pass.
        continue;
      }
      if (!has_results()) wait_for_one();
      return true;
    }
  }
  /// Takes back the entries that the kernel has not taken.
  void drop() {
    tail_ = std::atomic_ref(*kernel_head_).load(std::memory_order_acquire);
    std::atomic_ref(*kernel_tail_).store(tail_, std::memory_order_release);
  }
  /// Requests that the kernel has, and those whose results were not taken.
  unsigned held() const {
    return std::atomic_ref(*kernel_head_).load(std::memory_order_acquire) - *result_head_;
  }

  /// Calls `use(user_data, result)` for the results that are there; `result` is negative for an
  /// error. `use` may add requests, but may not throw.
  template <class Use>
  void take(const Use& use) {
    std::uint32_t head = *result_head_;
    while (head != std::atomic_ref(*result_tail_).load(std::memory_order_acquire)) {
      const io_uring_cqe result = results_[head & result_mask_];
      std::atomic_ref(*result_head_).store(++head, std::memory_order_release);
      use(result.user_data, result.res);
    }
  }

 private:
  [[noreturn]] static void fail(const char* call) {
    throw std::system_error(errno, std::generic_category(), call);
  }

  /// With what makes it cheaper, where the kernel knows that: results are written when the thread
  /// asks for them, and not by interrupting it.
  static int set_up(unsigned depth, io_uring_params& params) {
#ifdef IORING_SETUP_DEFER_TASKRUN
    constexpr std::array kFlags{
        IORING_SETUP_CLAMP | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_CLAMP};
#else
    constexpr std::array kFlags{IORING_SETUP_CLAMP};
#endif
    long number = -1;
    for (const unsigned flags : kFlags) {
      params = {};
      params.flags = flags;
      number = ::syscall(__NR_io_uring_setup, depth, &params);
      if (number >= 0 || errno != EINVAL) break;
    }
    return static_cast<int>(number);
  }

  void map(const io_uring_params& params) {
    entry_mask_ = params.sq_entries - 1;
    result_mask_ = params.cq_entries - 1;
    ring_bytes_ =
        std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(std::uint32_t),
                              params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
    ring_ = static_cast<std::byte*>(memory(ring_bytes_, IORING_OFF_SQ_RING));
    entries_ = static_cast<io_uring_sqe*>(memory(entries_bytes_, IORING_OFF_SQES));
    kernel_head_ = number_at(params.sq_off.head);
    kernel_tail_ = number_at(params.sq_off.tail);
    entry_numbers_ = number_at(params.sq_off.array);
    result_head_ = number_at(params.cq_off.head);
    result_tail_ = number_at(params.cq_off.tail);
    results_ = reinterpret_cast<const io_uring_cqe*>(ring_ + params.cq_off.cqes);
    tail_ = *kernel_tail_;
  }
  void* memory(std::size_t bytes, std::uint64_t part) const {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                                number_, static_cast<::off_t>(part));
    if (mapped == MAP_FAILED) fail("mmap of an io_uring");
    return mapped;
  }
  std::uint32_t* number_at(std::uint32_t offset) const {
    return reinterpret_cast<std::uint32_t*>(ring_ + offset);
  }

  /// Entries that the kernel has not taken yet.
  unsigned left() const {
    return tail_ - std::atomic_ref(*kernel_head_).load(std::memory_order_acquire);
  }
  bool has_results() const {
    return *result_head_ != std::atomic_ref(*result_tail_).load(std::memory_order_acquire);
  }
  long call(unsigned entries, unsigned completions) const {
    const unsigned flags = completions > 0 ? IORING_ENTER_GETEVENTS : 0;
    return ::syscall(__NR_io_uring_enter, number_, entries, completions, flags, nullptr, 0);
  }
  /// The kernel may write to memory as long as a request is in flight, so without its result there
  /// is nothing safe to do.
  void wait_for_one() const {
    while (call(0, 1) < 0)
      if (errno != EINTR) std::terminate();
  }

  void close() noexcept {
    if (ring_ != nullptr) ::munmap(ring_, ring_bytes_);
    if (entries_ != nullptr) ::munmap(entries_, entries_bytes_);
    if (number_ >= 0) ::close(number_);
  }

  int number_ = -1;
  std::byte* ring_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  std::size_t ring_bytes_ = 0, entries_bytes_ = 0;
  std::uint32_t *kernel_head_ = nullptr, *kernel_tail_ = nullptr, *entry_numbers_ = nullptr;
  std::uint32_t *result_head_ = nullptr, *result_tail_ = nullptr;
  const io_uring_cqe* results_ = nullptr;
  std::uint32_t entry_mask_ = 0, result_mask_ = 0, tail_ = 0;
};

#endif

}  // namespace penstock::detail
