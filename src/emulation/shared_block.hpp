// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device memory that several processes share: a block of a shared file, after a page that says
// which of its allocations are alive. The process that allocated the memory writes that page, and
// the others read it before they use the memory. So cases that CUDA leaves undefined (memory that
// was freed before they closed it, a process that has ended) are reported, and no process accesses
// memory that is gone. Use it with the runtime's lock held.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/version.hpp>

#include "interprocess_handle.hpp"
#include "memory_file.hpp"
#include "process_identity.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// The page before the block's bytes.
struct BlockHeader {
  static constexpr std::uint64_t kMagic = 0x3142'6b63'6f74'736e;

  std::uint64_t magic;
  std::uint64_t bytes;    ///< size of the block
  ProcessIdentity owner;  ///< the process that allocates and frees it
  std::int32_t device;
  /// The allocations of the block are numbered from 1. `begun` is the last one that may be used, in
  /// the order of the owner's streams; `ended` is the last one that is freed.
  std::atomic<std::uint64_t> begun, ended;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A block that this process owns.
class SharedBlock {
 public:
  /// Makes a block at the end of the file, which has room for it. Returns null if the system
  /// refuses.
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
  /// The owner's streams have reached the allocation, or its free.
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
  /// Returns null if the file has no such block, or if the allocation was freed.
  static std::unique_ptr<OpenedBlock> open(const SharedFile& file,
                                           const InterprocessHandle& handle);

  bool is(const InterprocessHandle& handle) const;
  off_t data_offset() const;
  std::size_t bytes() const { return bytes_; }  ///< size of the block
  int device() const { return header().device; }

  bool begun() const { return header().begun.load(std::memory_order_acquire) >= life_; }
  /// Whether the memory may be used. If not, one message on standard error says why.
  bool usable();
  /// Whether the memory was freed, or the process that owns it has ended.
  bool lost() const;

  unsigned opened = 1;  ///< number of opens minus number of closes

 private:
  OpenedBlock() = default;
  BlockHeader& header() const { return *static_cast<BlockHeader*>(pages_.data()); }

  std::uint64_t file_ = 0, offset_ = 0, life_ = 0;
  std::size_t bytes_ = 0;
  SharedPages pages_;
  std::chrono::steady_clock::time_point looked_{};  ///< the last check that the owner runs
  bool told_ = false;
};

}  // namespace penstock::emulation::detail
