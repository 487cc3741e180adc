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
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <stop_token>
#include <utility>

namespace penstock {

struct PinnedPoolOptions {
  std::size_t max_bytes =
      0;  ///< cap on all blocks together; 0: half the memory this process may use
  std::chrono::milliseconds timeout{30'000};  ///< how long `acquire` waits for a block to come
                                              ///< back; milliseconds::max(): for ever
  unsigned flags =
      cudaHostAllocPortable;  ///< of cudaHostAlloc, for example | cudaHostAllocWriteCombined
  int numa_node = -1;         ///< node whose memory the blocks come from; -1: any
};

struct PinnedPoolStats {
  std::size_t blocks = 0, bytes = 0;        ///< allocated now
  std::size_t bytes_in_use = 0;             ///< of these, held by the program
  std::size_t bytes_in_flight = 0;          ///< given back, and a copy may still read them
  std::size_t max_bytes = 0;                ///< the cap
  std::uint64_t allocated = 0, reused = 0;  ///< acquisitions that allocated, that did not
  std::uint64_t waits = 0;                  ///< acquisitions that had to wait for a block
  std::chrono::nanoseconds waiting{0};      ///< time spent in these waits, by all threads
};

class PinnedBlock;

namespace detail {
class PinnedPoolCore;
struct PinnedEntry;
struct ResolvedStream;
template <class Queue>
void copy_from(PinnedBlock& block, const ResolvedStream& stream, Queue queue);
}  // namespace detail

/// A block of a PinnedPool: move-only; a moved-from block is empty. May outlive its pool.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  PinnedBlock(PinnedBlock&& other) noexcept
      : core_(other.core_), entry_(std::exchange(other.entry_, nullptr)) {}
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    PinnedBlock taken(std::move(other));
    std::swap(core_, taken.core_);
    std::swap(entry_, taken.entry_);
    return *this;
  }
  /// Gives the block back for use at once: right when no device work reads or writes it any more.
  /// Between a copy and release_after an exception may end the block too early: copy_to does both.
  ~PinnedBlock() { release(); }

  explicit operator bool() const noexcept { return entry_ != nullptr; }
  /// At least 256-byte aligned. The contents are whatever the last owner left.
  std::byte* data() const noexcept;
  /// The bytes that were asked for.
  std::size_t size() const noexcept;

  /// Queues a copy of the first `bytes` bytes to `device` on `stream`, and gives the block back
  /// behind it, also where a call fails: as release_after, with its errors. Throws
  /// std::invalid_argument, and does nothing, for more bytes than the block has.
  [[gnu::always_inline]] void copy_to(void* device, std::size_t bytes, cudaStream_t stream) {
    copy_to_named(device, bytes, detail::named(stream));
  }

  /// Gives the block back now; it is handed out again once all that `stream` holds at this moment
  /// is done. Does not block. The block is empty afterwards. When the moment cannot be marked, the
  /// host waits for the stream instead; when that fails too, the block is never handed out again.
  /// In both cases CudaError is thrown. For a stream that is being captured, throws
  /// std::logic_error, and the block stays held: release it after the capture. If it is destroyed
  /// before that, it is never handed out again either.
  [[gnu::always_inline]] void release_after(cudaStream_t stream) {
    release_after_named(detail::named(stream));
  }

  /// Gives the block back for use at once.
  void release() noexcept;

 private:
  friend class PinnedPool;
  template <class Queue>
  friend void detail::copy_from(PinnedBlock&, const detail::ResolvedStream&, Queue);
  void copy_to_named(void* device, std::size_t bytes, cudaStream_t stream);
  void release_after_named(cudaStream_t stream);
  void release_after(const detail::ResolvedStream& stream);
  PinnedBlock(detail::PinnedPoolCore* core, detail::PinnedEntry* entry, std::size_t size);

  detail::PinnedPoolCore* core_ = nullptr;
  detail::PinnedEntry* entry_ = nullptr;
};

/// All members may be called from any thread. After warm-up neither acquire nor release allocates
/// or makes a call of CUDA's that blocks the host.
class PinnedPool {
 public:
  /// Throws std::invalid_argument for a negative time-out.
  explicit PinnedPool(PinnedPoolOptions options = {});
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  /// Waits until the device has stopped reading blocks that were given back. Blocks that are still
  /// held keep their memory, and give it back to the system when the last of them is released.
  ~PinnedPool();

  /// A block of `bytes` that no copy reads any more. In this order: a free block (one that wastes
  /// at most an eighth), a block whose copy is done, new memory up to the cap, a wait for a block
  /// to come back. The wait polls events with short sleeps, so it can be stopped and never blocks
  /// inside CUDA. Throws PoolExhausted: `bytes` is over the cap, the system refuses, or the
  /// time-out passed.
  PinnedBlock acquire(std::size_t bytes);
  /// The same; an empty block when `stop` is requested while waiting.
  PinnedBlock acquire(std::size_t bytes, const std::stop_token& stop);
  /// A block if one is at hand without waiting; empty otherwise. Does not allocate.
  PinnedBlock try_acquire(std::size_t bytes);

  /// Allocates `count` more blocks of `bytes`, ready for streams of the current device: warm-up,
  /// before the hot path.
  void reserve(std::size_t count, std::size_t bytes);

  const PinnedPoolOptions& options() const noexcept;
  PinnedPoolStats stats() const;

 private:
  detail::PinnedPoolCore* core_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/pinned_pool.hpp>
#endif
