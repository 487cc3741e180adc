// SPDX-License-Identifier: Apache-2.0
#pragma once

// PinnedPoolResource and DeviceArenaResource: the memory of a PinnedPool or a DeviceArena for the
// containers and algorithms of others, as std::pmr::memory_resource and as cuda::mr resources.
//
//   penstock::PinnedPool pool{{.max_bytes = 1 << 30}};
//   penstock::PinnedPoolResource pinned(pool, stream);
//   std::pmr::vector<float> weights(1000, 0.5f, &pinned);  // page-locked
//   cudaMemcpyAsync(device, weights.data(), 4000, cudaMemcpyHostToDevice, stream);
//   // The vector may go now: its memory is reused after the copy.
//
// CCCL has cuda::mr since 3.1. Before, it is an experiment there, which each source has to be
// compiled for: -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE. Without it, what follows is there
// all the same, but for the properties that cuda::mr asks for. docs/interop/cccl.md has examples.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/pinned_pool.hpp>

#if __has_include(<cuda/version>)
#include <cuda/version>  // CCCL_VERSION
#endif
#if CCCL_VERSION >= 3001000 || defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define PENSTOCK_WITH_CUDA_MR
#include <cuda/memory_resource>
#endif

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

struct ArenaAllocations;

}  // namespace detail

/// Page-locked memory of a PinnedPool, for the host and the device. An allocation is one block of
/// the pool, of any size and alignment. It counts against the pool's cap with its bytes plus its
/// alignment, or plus 256 if that is more. Small ones (the nodes of a list or a map) belong behind
/// std::pmr::unsynchronized_pool_resource or monotonic_buffer_resource. Two resources are equal if
/// they are of the same pool.
///
/// Any thread may call any member. Allocations throw what PinnedPool::acquire throws, and wait as
/// it does: where the program itself holds all blocks, until the pool's time-out. Deallocations
/// throw nothing: where a CUDA call fails, or the stream is being captured into a graph, the block
/// is never reused. The pool may be gone by then: see PinnedBlock.
class PinnedPoolResource final : public std::pmr::memory_resource {
 public:
  /// Deallocation without a stream is PinnedBlock::release: no device work may use the memory any
  /// more.
  explicit PinnedPoolResource(PinnedPool& pool) noexcept : pool_(&pool) {}
  /// Deallocation without a stream is PinnedBlock::release_after: the memory is reused after the
  /// work that `stream` holds then. `stream` has to outlive the containers. Throws CudaError.
  [[gnu::always_inline]] PinnedPoolResource(PinnedPool& pool, StreamRef stream)
      : pool_(&pool), stream_(detail::resolve(detail::named(stream), -1)) {}

  // ---- Without a stream: std::pmr, cuda::mr

  using std::pmr::memory_resource::allocate;
  using std::pmr::memory_resource::deallocate;
  /// A block of the pool, which the host and every stream may use at once.
  [[nodiscard]] void* allocate_sync(std::size_t bytes,
                                    std::size_t alignment = alignof(std::max_align_t)) {
    return allocate(bytes, alignment);
  }
  /// What the constructor says of deallocation without a stream.
  void deallocate_sync(void* memory, std::size_t bytes,
                       std::size_t alignment = alignof(std::max_align_t)) noexcept {
    deallocate(memory, bytes, alignment);
  }

  // ---- In the order of a stream: cuda::mr, in CCCL's words since 3.1, and those before

  /// The host may use the memory at once, too.
  [[nodiscard]] void* allocate(StreamRef /*stream*/, std::size_t bytes,
                               std::size_t alignment = alignof(std::max_align_t)) {
    return allocate(bytes, alignment);
  }
  /// The memory is reused after the work that `stream` holds now.
  [[gnu::always_inline]] void deallocate(StreamRef stream, void* memory, std::size_t /*bytes*/,
                                         std::size_t /*alignment*/ = 0) noexcept {
    deallocate_after(memory, detail::named(stream));
  }
  /// allocate(stream, ...), by its name before CCCL 3.1.
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, StreamRef stream) {
    return allocate(stream, bytes, alignment);
  }
  /// deallocate(stream, ...), by its name before CCCL 3.1.
  [[gnu::always_inline]] void deallocate_async(void* memory, std::size_t bytes,
                                               std::size_t alignment, StreamRef stream) noexcept {
    deallocate(stream, memory, bytes, alignment);
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;
  static void deallocate_after(void* memory, cudaStream_t stream) noexcept;

  PinnedPool* pool_;
  detail::ResolvedStream stream_;  // empty: none
};

/// The slots of a DeviceArena, in stream order, as a cuda::mr resource: for buffers of one size
/// that come and go with each step, such as the temporary storage of CUB's algorithms. No
/// allocation reaches CUDA. There is no std::pmr::memory_resource of it: containers of the host
/// write what they allocate.
///
/// An allocation is one slot: of at most slot_bytes(), aligned to at most 512. Throws PoolExhausted
/// for more bytes, and while every slot is in use: it does not wait, since the caller itself may
/// have them. Throws std::invalid_argument for a larger alignment. A deallocation of what it did
/// not allocate is ignored.
///
/// Shares the arena's memory, so that the arena may go first. Copies are the same resource, and
/// equal; one of them has to outlive what is allocated. Any thread may call any member.
class DeviceArenaResource {
 public:
  /// Makes a stream, on the arena's device, for the calls without one.
  explicit DeviceArenaResource(const DeviceArena& arena);

  // ---- In the order of a stream: cuda::mr, in CCCL's words since 3.1, and those before

  /// DeviceArena::try_acquire(stream): `stream` waits for the slot's last readers.
  [[nodiscard, gnu::always_inline]] void* allocate(
      StreamRef stream, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    return take(bytes, alignment, detail::named(stream));
  }
  /// DeviceSlot::release_after(stream). Throws nothing: where that fails, the slot is lost, or
  /// parked until the end of a capture.
  [[gnu::always_inline]] void deallocate(StreamRef stream, void* memory, std::size_t /*bytes*/,
                                         std::size_t /*alignment*/ = 0) noexcept {
    put_back(memory, detail::named(stream));
  }
  /// allocate(stream, ...), by its name before CCCL 3.1.
  [[nodiscard, gnu::always_inline]] void* allocate_async(std::size_t bytes, std::size_t alignment,
                                                         StreamRef stream) {
    return allocate(stream, bytes, alignment);
  }
  /// deallocate(stream, ...), by its name before CCCL 3.1.
  [[gnu::always_inline]] void deallocate_async(void* memory, std::size_t bytes,
                                               std::size_t alignment, StreamRef stream) noexcept {
    deallocate(stream, memory, bytes, alignment);
  }

  // ---- Without a stream

  /// Blocks until the slot's last readers are done: every stream may use the memory then.
  [[nodiscard]] void* allocate_sync(std::size_t bytes,
                                    std::size_t alignment = alignof(std::max_align_t));
  /// No device work may use the memory any more.
  void deallocate_sync(void* memory, std::size_t /*bytes*/, std::size_t /*alignment*/ = 0) noexcept;
  /// allocate_sync, by its name before CCCL 3.1.
  [[nodiscard]] void* allocate(std::size_t bytes,
                               std::size_t alignment = alignof(std::max_align_t)) {
    return allocate_sync(bytes, alignment);
  }
  /// deallocate_sync, by its name before CCCL 3.1.
  void deallocate(void* memory, std::size_t bytes, std::size_t alignment = 0) noexcept {
    deallocate_sync(memory, bytes, alignment);
  }

  /// Whether one is a copy of the other.
  bool operator==(const DeviceArenaResource&) const noexcept = default;

 private:
  void* take(std::size_t bytes, std::size_t alignment, cudaStream_t stream);
  void put_back(void* memory, cudaStream_t stream) noexcept;

  std::shared_ptr<detail::ArenaAllocations> allocations_;
};

#ifdef PENSTOCK_WITH_CUDA_MR
constexpr void get_property(const PinnedPoolResource&, cuda::mr::host_accessible) noexcept {}
constexpr void get_property(const PinnedPoolResource&, cuda::mr::device_accessible) noexcept {}
constexpr void get_property(const DeviceArenaResource&, cuda::mr::device_accessible) noexcept {}

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource_with<PinnedPoolResource, cuda::mr::host_accessible,
                                      cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<DeviceArenaResource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::async_resource_with<PinnedPoolResource, cuda::mr::host_accessible,
                                            cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<DeviceArenaResource, cuda::mr::device_accessible>);
#endif
#undef PENSTOCK_WITH_CUDA_MR
#endif

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/memory_resource.hpp>
#endif
