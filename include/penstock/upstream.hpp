// SPDX-License-Identifier: Apache-2.0
#pragma once

// Upstream: memory of yours in place of cudaHostAlloc and cudaMalloc. A pool, an arena or a
// prefetcher takes its blocks from it: from a pool that the program has anyway, such as an
// rmm::mr::pool_memory_resource, or from a resource that counts, limits or places.
//
//   penstock::PinnedPool shared{{.max_bytes = 1 << 30}};  // for several pipelines
//   penstock::PinnedPoolResource memory(shared);
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source, {.host_memory = &memory}};

#include <concepts>
#include <cstddef>
#include <memory>
#include <penstock/version.hpp>
#include <stdexcept>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// A type-erased memory resource.
class AnyUpstream {
 public:
  virtual ~AnyUpstream() = default;
  virtual void* allocate(std::size_t bytes, std::size_t alignment) = 0;
  virtual void deallocate(void* memory, std::size_t bytes, std::size_t alignment) = 0;
};

/// Required by cuda::mr::synchronous_resource since CCCL 3.1.
template <class Resource>
concept AllocatesSync = requires(Resource& resource, void* memory, std::size_t bytes) {
  { resource.allocate_sync(bytes, bytes) } -> std::same_as<void*>;
  resource.deallocate_sync(memory, bytes, bytes);
};

/// Required by cuda::mr::resource before CCCL 3.1, and the same as in std::pmr::memory_resource.
template <class Resource>
concept Allocates = requires(Resource& resource, void* memory, std::size_t bytes) {
  { resource.allocate(bytes, bytes) } -> std::same_as<void*>;
  resource.deallocate(memory, bytes, bytes);
};

template <class Resource>
class UpstreamOf final : public AnyUpstream {
 public:
  explicit UpstreamOf(std::shared_ptr<Resource> resource) : resource_(std::move(resource)) {}

  void* allocate(std::size_t bytes, std::size_t alignment) override {
    if constexpr (AllocatesSync<Resource>)
      return resource_->allocate_sync(bytes, alignment);
    else
      return resource_->allocate(bytes, alignment);
  }
  void deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    if constexpr (AllocatesSync<Resource>)
      resource_->deallocate_sync(memory, bytes, alignment);
    else
      resource_->deallocate(memory, bytes, alignment);
  }

 private:
  std::shared_ptr<Resource> resource_;
};

}  // namespace detail

/// Has allocate_sync and deallocate_sync (cuda::mr::synchronous_resource of CCCL 3.1 and newer), or
/// allocate and deallocate (cuda::mr::resource of older ones, std::pmr::memory_resource), of bytes
/// and an alignment.
template <class Resource>
concept MemoryResource = detail::AllocatesSync<Resource> || detail::Allocates<Resource>;

/// Where memory comes from. It is called when a pool, an arena or a prefetcher is constructed or
/// destroyed, and when a PinnedPool grows or frees blocks; never for a batch.
///
/// Memory that it gives must be usable on every stream at once. No stream uses memory that it gets
/// back. (These are the rules of cuda::mr's synchronous calls.) Several threads may call it at the
/// same time. An exception of allocate becomes a MemoryError; an exception of deallocate is
/// ignored.
class Upstream {
 public:
  /// CUDA itself: cudaHostAlloc, cudaMalloc.
  Upstream() = default;
  /// `*resource` is not owned: it has to outlive the pool and its blocks, the arena and its slots,
  /// the prefetcher and its leases. Throws std::invalid_argument for nullptr.
  template <MemoryResource Resource>
  Upstream(Resource* resource)  // NOLINT(google-explicit-constructor): an option is set to it.
      : Upstream(std::shared_ptr<Resource>(std::shared_ptr<void>(), resource)) {}
  /// Shared with what takes memory from it, until all of that is freed. Throws
  /// std::invalid_argument for nullptr.
  template <MemoryResource Resource>
  Upstream(std::shared_ptr<Resource> resource)  // NOLINT(google-explicit-constructor)
      : resource_(made(std::move(resource))) {}
  /// A copy of `resource`, for those that stand for another: cuda::mr::resource_ref, any_resource.
  template <MemoryResource Resource>
  // NOLINTNEXTLINE(google-explicit-constructor)
  requires std::move_constructible<Resource> Upstream(Resource resource)
      : Upstream(std::make_shared<Resource>(std::move(resource))) {}

  /// Whether this is a resource, and not CUDA itself.
  explicit operator bool() const noexcept { return resource_ != nullptr; }

  /// Returns the resource for the code that allocates, or nullptr for CUDA itself.
  const std::shared_ptr<detail::AnyUpstream>& resource() const noexcept { return resource_; }

 private:
  template <class Resource>
  static std::shared_ptr<detail::AnyUpstream> made(std::shared_ptr<Resource> resource) {
    if (resource == nullptr)
      throw std::invalid_argument("Upstream: the pointer to the memory resource is null");
    return std::make_shared<detail::UpstreamOf<Resource>>(std::move(resource));
  }

  std::shared_ptr<detail::AnyUpstream> resource_;
};

}  // namespace penstock
