// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadSlot: a read of a ReadQueue that is in flight, and the memory that it has. WantedBytes: what
// is read.

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <penstock/detail/open_file.hpp>
#include <penstock/detail/storage/gathered_read.hpp>
#include <penstock/detail/storage/path_text.hpp>
#include <penstock/file.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Bytes of a file that a caller wants.
struct WantedBytes {
  std::uint64_t end() const noexcept { return offset + bytes; }

  const File* file = nullptr;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  std::byte* target = nullptr;  // nullptr: memory of the queue, valid during the call
  std::size_t key = 0;          // the caller's number
};

/// Memory that begins at a page, as O_DIRECT wants it. It grows, and never shrinks.
class PageMemory {
 public:
  static constexpr std::size_t kPage = 4096;

  /// What it had is lost where it grows.
  std::span<std::byte> room(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      constexpr std::size_t kStep = std::size_t{64} << 10;
      const std::size_t rounded = (bytes + kStep - 1) / kStep * kStep;
      memory_.reset(static_cast<std::byte*>(::operator new (rounded, std::align_val_t{kPage})));
      bytes_ = rounded;
    }
    return {memory_.get(), bytes};
  }

 private:
  struct Delete {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kPage});
    }
  };
  std::unique_ptr<std::byte, Delete> memory_;
  std::size_t bytes_ = 0;
};

/// What the kernel is told of a read, and what becomes of its bytes.
class ReadSlot {
 public:
  /// Reads `some`, which lie together in a file of this machine, in the order of their places: all
  /// of them have targets, or none has one.
  void prepare(std::span<const WantedBytes> some) {
    wanted = some;
    descriptor = some.front().file->descriptor();
    offset_ = some.front().offset;
    is_direct = false;
    goes_to_targets_ = some.front().target != nullptr;
    if (!goes_to_targets_) return read_to_memory(farthest());
    if (some.size() == 1) return read_to(some.front().target, some.front().bytes);
    gathered_.emplace(offset_);
    std::uint64_t end = offset_;
    for (const WantedBytes& one : some) {
      gathered_->skip(static_cast<std::size_t>(one.offset - end));
      gathered_->add({one.target, one.bytes});
      end = one.end();
    }
    pieces_ = gathered_->pieces();
    bytes_ = needed_ = static_cast<std::size_t>(end - offset_);
  }

  /// The same past the page cache: straight to the target if that is aligned as the device wants
  /// it, else to memory of the slot.
  void prepare_direct(std::span<const WantedBytes> some, const DirectFile& direct) {
    const WantedBytes& first = some.front();
    const std::size_t step = direct.offset_alignment;
    const bool fits = some.size() == 1 && first.target != nullptr && first.offset % step == 0 &&
                      first.bytes % step == 0 &&
                      reinterpret_cast<std::uintptr_t>(first.target) % direct.memory_alignment == 0;
    if (fits) {
      prepare(some);
    } else {
      wanted = some;
      goes_to_targets_ = false;
      offset_ = first.offset / step * step;
      read_to_memory(farthest());
      bytes_ = (bytes_ + step - 1) / step * step;
      one_piece_ = {memory_.room(bytes_).data(), bytes_};
    }
    descriptor = direct.descriptor;
    is_direct = true;
  }

  /// Reads a whole file that was opened for it.
  void prepare_file(std::size_t bytes) {
    descriptor = opened.descriptor();
    is_direct = false;
    offset_ = 0;
    read_to_memory(bytes);
  }

  /// Whether `result` bytes are all that are wanted.
  bool is_complete(::ssize_t result) const {
    return result >= 0 && static_cast<std::size_t>(result) >= needed_;
  }

  /// Where the bytes of `one`, which is in `wanted`, are now.
  std::span<const std::byte> take(const WantedBytes& one) const {
    if (one.target == nullptr) return in_memory(one);
    if (!goes_to_targets_) std::memcpy(one.target, in_memory(one).data(), one.bytes);
    return {one.target, one.bytes};
  }
  std::span<const std::byte> whole() const {
    return {static_cast<const std::byte*>(one_piece_.iov_base), needed_};
  }

  std::span<const ::iovec> pieces() const { return pieces_; }
  std::uint64_t offset() const { return offset_; }
  std::size_t bytes() const { return bytes_; }

  /// Reads now.
  ::ssize_t read() const {
    const auto begin = static_cast<::off_t>(offset_);
    return uninterrupted([&] {
      return pieces_.size() == 1
                 ? ::pread(descriptor, pieces_[0].iov_base, pieces_[0].iov_len, begin)
                 : ::preadv(descriptor, pieces_.data(), static_cast<int>(pieces_.size()), begin);
    });
  }
  /// The same for what is in the page cache. Where that is not all, errno may be EAGAIN.
  ::ssize_t read_cached() const {
    return uninterrupted([&] {
      return ::preadv2(descriptor, pieces_.data(), static_cast<int>(pieces_.size()),
                       static_cast<::off_t>(offset_), RWF_NOWAIT);
    });
  }

  void clear() {
    wanted = {};
    opened = OpenFile();
    tries = 0;
    is_opening = false;
  }

  std::span<const WantedBytes> wanted;
  int descriptor = -1;
  bool is_direct = false, is_busy = false;
  int tries = 0;  // after which the kernel had asked for another one

  // Of a file that is opened to be read whole:
  bool is_opening = false;
  std::size_t key = 0;
  PathText path;
  OpenFile opened;

 private:
  std::uint64_t farthest() const {
    std::uint64_t end = 0;
    for (const WantedBytes& one : wanted) end = std::max(end, one.end());
    return end;
  }
  void read_to_memory(std::uint64_t end) {
    const auto bytes = static_cast<std::size_t>(end - offset_);
    read_to(memory_.room(bytes).data(), bytes);
  }
  void read_to(std::byte* memory, std::size_t bytes) {
    bytes_ = needed_ = bytes;
    one_piece_ = {memory, bytes};
    pieces_ = std::span(&one_piece_, 1);
  }
  std::span<const std::byte> in_memory(const WantedBytes& one) const {
    return whole().subspan(static_cast<std::size_t>(one.offset - offset_), one.bytes);
  }

  std::uint64_t offset_ = 0;
  std::size_t bytes_ = 0, needed_ = 0;
  PageMemory memory_;
  bool goes_to_targets_ = false;          // else to `memory_`
  std::optional<GatheredRead> gathered_;  // of several targets
  ::iovec one_piece_{};
  std::span<const ::iovec> pieces_;
};

}  // namespace penstock::detail
