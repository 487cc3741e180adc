// SPDX-License-Identifier: Apache-2.0
#pragma once

// PinnedPool hands out page-locked host blocks, reuses them, and keeps their sum under a limit.
//
//   penstock::PinnedPool pool{{.max_bytes = 1 << 30}};
//   penstock::PinnedBlock block = pool.acquire(bytes);
//   fill(block.data());
//   block.copy_to(device, bytes, stream);   // releases it; it is reused after the copy

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/upstream.hpp>
#include <stop_token>

namespace penstock::inline PENSTOCK_ABI {

/// The settings of a PinnedPool.
struct PinnedPoolOptions {
  /// The largest sum of the sizes of all blocks. 0 stands for half the memory that this process may
  /// use.
  std::size_t max_bytes = 0;
  /// The longest wait of `acquire`; milliseconds::max() stands for no limit. The time in which the
  /// process is stopped (SIGSTOP, a suspended machine) does not count. For workers that fill
  /// batches ahead, the time begins only when BatchProducer::next waits for a block, too.
  std::chrono::milliseconds timeout{30'000};
  unsigned flags = cudaHostAllocPortable;  ///< passed to cudaHostAlloc
  /// The NUMA node of the blocks; -1 stands for any. With a node, `flags` may have only
  /// cudaHostAllocPortable and cudaHostAllocMapped, since such memory cannot be write-combined.
  int numa_node = -1;
  Upstream upstream = {};  ///< the source of page-locked memory, in place of cudaHostAlloc
};

/// A snapshot of a PinnedPool.
struct PinnedPoolStats {
  std::size_t blocks = 0, bytes = 0;  ///< number and size of the blocks that are allocated now
  std::size_t bytes_in_use = 0;       ///< bytes of the blocks that the program holds
  /// Bytes of the blocks that are released and that a copy may still read.
  std::size_t bytes_in_flight = 0;
  std::size_t max_bytes = 0;                ///< the limit
  std::uint64_t allocated = 0, reused = 0;  ///< acquisitions that allocated, and the others
  std::uint64_t waits = 0;                  ///< acquisitions that waited for a block
  std::chrono::nanoseconds waiting{0};      ///< time spent in these waits, by all threads
};

namespace detail {
class PinnedPoolCore;
struct PinnedEntry;
struct PoolAccess;
struct ReleaseEntry {
  void operator()(PinnedEntry* entry) const noexcept;
};
struct ResolvedStream;
class WaitAhead;
}  // namespace detail

/// A block of a PinnedPool. It is move-only, and a moved-from block is empty. It may outlive its
/// pool. The destructor calls release(). If an exception could destroy the block between a copy and
/// release_after, use copy_to, which does both.
class PinnedBlock {
 public:
  PinnedBlock() = default;

  /// Returns false if the block is empty, as after a move or a release.
  explicit operator bool() const noexcept { return entry_ != nullptr; }
  /// Returns the memory, which is aligned to 256 bytes at least and not initialised.
  std::byte* data() const noexcept;
  /// Returns the number of bytes that were asked for.
  std::size_t size() const noexcept;

  /// Queues a copy of the first `bytes` bytes to `device` on `stream`, and releases the block after
  /// it, even if a call fails. Throws what release_after throws. For more bytes than the block has
  /// it throws std::invalid_argument and does nothing.
  [[gnu::always_inline]] void copy_to(void* device, std::size_t bytes, StreamRef stream) {
    copy_to_named(device, bytes, detail::named(stream));
  }

  /// Releases the block, which may be reused once the work that is queued on `stream` now is done.
  /// Does not block. The block is empty afterwards. If the event cannot be recorded, the host waits
  /// for the stream instead, and if that fails too, the block is never reused; both throw
  /// CudaError. For a stream that is being captured it throws std::logic_error and does not release
  /// the block. If that block is then destroyed without a release, it is never reused.
  [[gnu::always_inline]] void release_after(StreamRef stream) {
    release_after_named(detail::named(stream));
  }

  /// Releases the block for immediate reuse. No device work may still read or write it.
  void release() noexcept { entry_.reset(); }

 private:
  friend class PinnedPool;
  friend class PinnedPoolResource;
  friend struct detail::PoolAccess;
  void copy_to_named(void* device, std::size_t bytes, cudaStream_t stream);
  void release_after_named(cudaStream_t stream);
  void release_after(const detail::ResolvedStream& stream);
  /// The same for a stream that another thread may have resolved. A block that cannot be released
  /// is never reused.
  void release_after_elsewhere(const detail::ResolvedStream& stream) noexcept;
  PinnedBlock(detail::PinnedEntry* entry, std::size_t size);

  std::unique_ptr<detail::PinnedEntry, detail::ReleaseEntry> entry_;
};

/// Hands out page-locked host blocks, reuses them, and keeps their sum under a limit. Any thread
/// may call any member. After warm-up, neither acquire nor release allocates or makes a CUDA call
/// that blocks the host.
class PinnedPool {
 public:
  /// Throws std::invalid_argument for a negative time-out, for flags or a numa_node that an
  /// upstream would not see, and for flags that memory of a NUMA node cannot have.
  explicit PinnedPool(PinnedPoolOptions options = {});
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  /// Waits until the device no longer reads released blocks. Blocks that are still held keep their
  /// memory, which is freed when the last of them is released.
  ~PinnedPool();

  /// Returns a block of `bytes` bytes that no copy reads. It takes the first that there is: a free
  /// block (at most an eighth larger), a block whose copy is done, or new memory up to the limit.
  /// Otherwise it waits for a block. The wait polls events with short sleeps, so it can be stopped
  /// and never blocks inside CUDA. Throws PoolExhausted if `bytes` is over the limit, if the system
  /// refuses memory, and after the time-out. Throws MemoryError if an upstream fails.
  PinnedBlock acquire(std::size_t bytes);
  /// Does the same, but returns an empty block if `stop` is requested during the wait.
  PinnedBlock acquire(std::size_t bytes, const std::stop_token& stop);
  /// Returns a free block, or an empty one if there is none. Does not wait or allocate.
  PinnedBlock try_acquire(std::size_t bytes);

  /// Warms the pool up: allocates `count` more blocks of `bytes` bytes, and their events for
  /// streams of the current device. Their sum counts for the limit from the start, so a thread that
  /// acquires such a block meanwhile waits for one of them. If the limit requires it, idle blocks
  /// of other sizes are freed, as `acquire` does. It does not wait for blocks. Throws PoolExhausted
  /// if the blocks still do not fit under the limit or the system refuses memory, MemoryError if an
  /// upstream fails, and CudaError. The blocks that were allocated before the error remain.
  void reserve(std::size_t count, std::size_t bytes);

  /// Returns the options. A max_bytes of 0 is replaced by the number that it stands for.
  const PinnedPoolOptions& options() const noexcept;
  /// Returns the present sizes and counts.
  PinnedPoolStats stats() const;

 private:
  friend struct detail::PoolAccess;
  /// Does the same as acquire(), but `ahead` decides when the time-out begins.
  PinnedBlock acquire(std::size_t bytes, const std::stop_token& stop, detail::WaitAhead& ahead);

  detail::PinnedPoolCore* core_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/pinned_pool.hpp>
#endif
