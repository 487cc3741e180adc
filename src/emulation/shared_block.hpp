// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device memory that several processes have: a block of a shared file, behind a page that says
// which of its allocations are alive. The process that allocated the memory writes that page, and
// the others look at it before they use the memory: what CUDA leaves undefined (memory that was
// freed before they closed it, a process that has ended) is told, and nobody touches what is not
// there. Used under the runtime's lock.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "interprocess_handle.hpp"
#include "memory_file.hpp"
#include "process_identity.hpp"

namespace penstock::emulation::detail {

/// The page before the block's bytes.
struct BlockHeader {
  static constexpr std::uint64_t kMagic = 0x3142'6b63'6f74'736e;

  std::uint64_t magic;
  std::uint64_t bytes;    ///< of the block
  ProcessIdentity owner;  ///< the process that allocates and frees it
  std::int32_t device;
  /// The allocations of the block are numbered from 1. The last one that may be used, as the
  /// owner's streams have it, and the last one that is freed.
  std::atomic<std::uint64_t> begun, ended;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A block of this process's own.
class SharedBlock {
 public:
  /// A block at the end of the file, which has room for it. Empty when the system does not let it.
  static std::unique_ptr<SharedBlock> make(std::shared_ptr<SharedFile> file, std::size_t bytes,
                                           int device);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  const SharedFile& file() const { return *file_; }
  off_t data_offset() const;
  std::size_t bytes() const { return static_cast<std::size_t>(header().bytes); }

  /// The number of the block's next allocation.
  std::uint64_t next_life() { return ++lives_; }
  std::uint64_t life() const { return lives_; }
  bool begun() const { return header().begun.load(std::memory_order_relaxed) >= lives_; }
  /// The owner's streams have come to the allocation, or to its free.
  void begin(std::uint64_t life);
  void end(std::uint64_t life);
  void end_all() { end(lives_); }

  InterprocessHandle handle(SharedKind kind, std::size_t bytes) const;

 private:
  SharedBlock() = default;
  BlockHeader& header() const { return *static_cast<BlockHeader*>(pages_.data()); }

  std::shared_ptr<SharedFile> file_;
  off_t offset_ = 0;
  SharedPages pages_;
  std::uint64_t lives_ = 0;
};

/// An allocation of another process's block.
class OpenedBlock {
 public:
  /// Null when there is no such block in the file, or the allocation was freed.
  static std::unique_ptr<OpenedBlock> open(const SharedFile& file,
                                           const InterprocessHandle& handle);

  bool is(const InterprocessHandle& handle) const;
  off_t data_offset() const;
  std::size_t bytes() const { return bytes_; }  ///< of the block
  int device() const { return header().device; }

  bool begun() const { return header().begun.load(std::memory_order_acquire) >= life_; }
  /// Whether the memory may be used. When it may not, a message on standard error says why, once.
  bool usable();
  /// Neither the process that has the memory nor the memory is there any more.
  bool lost() const;

  unsigned opened = 1;  ///< how often, less how often it was closed

 private:
  OpenedBlock() = default;
  BlockHeader& header() const { return *static_cast<BlockHeader*>(pages_.data()); }

  std::uint64_t file_ = 0, offset_ = 0, life_ = 0;
  std::size_t bytes_ = 0;
  SharedPages pages_;
  std::chrono::steady_clock::time_point looked_{};  ///< whether the owner runs
  bool told_ = false;
};

}  // namespace penstock::emulation::detail
