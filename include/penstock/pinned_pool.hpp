// SPDX-License-Identifier: Apache-2.0
#pragma once

// PinnedPool: page-locked host blocks, reused, under a byte cap.
//
//   penstock::PinnedPool pool{{.max_bytes = 1 << 30}};
//   penstock::PinnedBlock block = pool.acquire(bytes);
//   fill(block.data());
//   block.copy_to(device, bytes, stream);   // back at once; its next owner gets it after the copy

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/upstream.hpp>
#include <stop_token>

namespace penstock {

/// The settings of a PinnedPool.
struct PinnedPoolOptions {
  /// Limit on all blocks together; 0: half the memory this process may use.
  std::size_t max_bytes = 0;
  /// Limit on the wait of `acquire`; milliseconds::max(): none. The time in which the process is
  /// stopped (SIGSTOP, a suspended machine) does not count. Workers that fill batches ahead wait
  /// without a limit: theirs begins when BatchProducer::next waits for a block, too.
  std::chrono::milliseconds timeout{30'000};
  unsigned flags = cudaHostAllocPortable;  ///< passed to cudaHostAlloc
  /// NUMA node of the blocks; -1: any. With a node, `flags` may have cudaHostAllocPortable and
  /// cudaHostAllocMapped only: such memory cannot be write-combined.
  int numa_node = -1;
  Upstream upstream = {};  ///< where page-locked memory comes from, instead of cudaHostAlloc
};

/// A snapshot of a PinnedPool.
struct PinnedPoolStats {
  std::size_t blocks = 0, bytes = 0;  ///< number and size of the blocks that are allocated now
  std::size_t bytes_in_use = 0;       ///< of these bytes, those in blocks that the program holds
  /// Of these bytes, those that are released and that a copy may still read.
  std::size_t bytes_in_flight = 0;
  std::size_t max_bytes = 0;                ///< the limit
  std::uint64_t allocated = 0, reused = 0;  ///< acquisitions that allocated, and that did not
  std::uint64_t waits = 0;                  ///< acquisitions that waited for a block
  std::chrono::nanoseconds waiting{0};      ///< time spent in these waits, by all threads
};

namespace detail {
class BatchMemory;
struct BlockBatch;
class PinnedPoolCore;
struct PinnedEntry;
struct ReleaseEntry {
  void operator()(PinnedEntry* entry) const noexcept;
};
struct ResolvedStream;
class WaitAhead;
}  // namespace detail

/// A block of a PinnedPool. Move-only; a moved-from block is empty. It may outlive its pool. The
/// destructor calls release(): if an exception could destroy the block between a copy and
/// release_after, use copy_to, which does both.
class PinnedBlock {
 public:
  PinnedBlock() = default;

  /// Whether this is a block: false after a move or a release.
  explicit operator bool() const noexcept { return entry_ != nullptr; }
  /// At least 256-byte aligned. The contents are not initialised.
  std::byte* data() const noexcept;
  /// The bytes that were asked for.
  std::size_t size() const noexcept;

  /// Queues a copy of the first `bytes` bytes to `device` on `stream`, and releases the block after
  /// it, also if a call fails. Throws like release_after; std::invalid_argument, and does nothing,
  /// for more bytes than the block has.
  [[gnu::always_inline]] void copy_to(void* device, std::size_t bytes, StreamRef stream) {
    copy_to_named(device, bytes, detail::named(stream));
  }

  /// Releases the block: it is reused once the work that `stream` holds now is done. Does not
  /// block. The block is empty afterwards. If the event cannot be recorded, the host waits for the
  /// stream instead; if that fails too, the block is never reused. Both throw CudaError. Throws
  /// std::logic_error for a stream that is being captured: the block is not released then. If it is
  /// destroyed before it could be released, it is never reused.
  [[gnu::always_inline]] void release_after(StreamRef stream) {
    release_after_named(detail::named(stream));
  }

  /// Releases the block for immediate reuse: no device work may read or write it any more.
  void release() noexcept { entry_.reset(); }

 private:
  friend class PinnedPool;
  friend class PinnedPoolResource;
  friend struct detail::BlockBatch;
  void copy_to_named(void* device, std::size_t bytes, cudaStream_t stream);
  void release_after_named(cudaStream_t stream);
  void release_after(const detail::ResolvedStream& stream);
  /// Of a stream that another thread may have resolved. What cannot be released is lost.
  void release_after_elsewhere(const detail::ResolvedStream& stream) noexcept;
  PinnedBlock(detail::PinnedEntry* entry, std::size_t size);

  std::unique_ptr<detail::PinnedEntry, detail::ReleaseEntry> entry_;
};

/// Page-locked host blocks, reused, under a byte cap. Any thread may call any member. After
/// warm-up, neither acquire nor release allocates or makes a CUDA call that blocks the host.
class PinnedPool {
 public:
  /// Throws std::invalid_argument for a negative time-out, for flags or a numa_node that an
  /// upstream would not see, and for flags that memory of a NUMA node cannot have.
  explicit PinnedPool(PinnedPoolOptions options = {});
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  /// Waits until the device has stopped reading released blocks. Blocks that are still held keep
  /// their memory; it is freed when the last of them is released.
  ~PinnedPool();

  /// A block of `bytes` bytes that no copy reads. Takes the first of these: a free block (at most
  /// an eighth larger), a block whose copy is done, new memory up to the limit; otherwise waits for
  /// a block. The wait polls events with short sleeps: it can be stopped, and never blocks inside
  /// CUDA. Throws PoolExhausted if `bytes` is over the limit, if the system refuses memory, and
  /// after the time-out; MemoryError if an upstream fails.
  PinnedBlock acquire(std::size_t bytes);
  /// The same; an empty block if `stop` is requested during the wait.
  PinnedBlock acquire(std::size_t bytes, const std::stop_token& stop);
  /// A free block, or an empty one. Does not wait or allocate.
  PinnedBlock try_acquire(std::size_t bytes);

  /// Warm-up: allocates `count` more blocks of `bytes` bytes, and their events for streams of the
  /// current device. Their room under the limit is theirs from the start: a thread that acquires
  /// such a block meanwhile waits for one of them. Where the limit is in the way, idle blocks of
  /// other sizes are freed, as by `acquire`. It waits for no block. Throws PoolExhausted if the
  /// blocks do not fit under the limit then, and if the system refuses memory; MemoryError if an
  /// upstream fails; CudaError. The blocks that are there by then remain.
  void reserve(std::size_t count, std::size_t bytes);

  /// The options, where 0 is replaced by what it stands for.
  const PinnedPoolOptions& options() const noexcept;
  /// Sizes and counts of now. Any thread may call it.
  PinnedPoolStats stats() const;

 private:
  friend class detail::BatchMemory;
  /// As acquire(), but the time-out is told to `ahead`.
  PinnedBlock acquire(std::size_t bytes, const std::stop_token& stop, detail::WaitAhead& ahead);

  detail::PinnedPoolCore* core_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/pinned_pool.hpp>
#endif
