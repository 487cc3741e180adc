// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <penstock/detail/memory/device_arena.hpp>
#include <penstock/detail/memory/pinned_pool.hpp>
#include <penstock/error.hpp>
#include <penstock/memory_resource.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

/// The PinnedBlock of an allocation is stored this many bytes before it. Thus deallocation needs no
/// table and no lock, and any resource or thread may deallocate.
inline constexpr std::size_t block_prefix = 256;
static_assert(sizeof(PinnedBlock) <= block_prefix);

inline PinnedBlock take_block_of(void* memory) noexcept {
  auto* const kept =
      std::launder(reinterpret_cast<PinnedBlock*>(static_cast<std::byte*>(memory) - block_prefix));
  PinnedBlock block = std::move(*kept);
  std::destroy_at(kept);
  return block;
}

/// The state that the copies of a DeviceArenaResource share.
struct ArenaAllocations {
  explicit ArenaAllocations(const DeviceArena& of) : arena(of), held(of.slots()) {
    const DeviceGuard guard(of.device());
    stream.emplace();
  }

  DeviceArena arena;             // shares its memory with the arena that it is a copy of
  std::optional<Stream> stream;  // for calls that have no stream argument
  std::mutex mutex;              // guards `held`
  std::vector<DeviceSlot> held;  // by slot index; empty: not allocated
};

}  // namespace detail

PENSTOCK_INLINE void* PinnedPoolResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  // A block is aligned to 256 bytes, and so is the memory after the prefix.
  const std::size_t more = std::max(alignment, detail::block_prefix);
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  PinnedBlock block = pool_->acquire(std::min(bytes, kMost - more) + more);
  void* memory = block.data() + detail::block_prefix;
  std::size_t room = block.size() - detail::block_prefix;
  memory = std::align(more, bytes, memory, room);
  std::construct_at(
      reinterpret_cast<PinnedBlock*>(static_cast<std::byte*>(memory) - detail::block_prefix),
      std::move(block));
  return memory;
}

PENSTOCK_INLINE void PinnedPoolResource::do_deallocate(void* memory, std::size_t /*bytes*/,
                                                       std::size_t /*alignment*/) {
  PinnedBlock block = detail::take_block_of(memory);
  if (stream_.handle != nullptr) block.release_after_elsewhere(stream_);
}

PENSTOCK_INLINE bool PinnedPoolResource::do_is_equal(
    const std::pmr::memory_resource& other) const noexcept {
  const auto* const resource = dynamic_cast<const PinnedPoolResource*>(&other);
  return resource != nullptr && resource->pool_ == pool_;
}

PENSTOCK_INLINE void PinnedPoolResource::deallocate_after(void* memory,
                                                          cudaStream_t stream) noexcept {
  PinnedBlock block = detail::take_block_of(memory);
  try {
    block.release_after_named(stream);
  } catch (...) {  // The block is lost; the pool reports the error when all blocks are lost.
  }
}

PENSTOCK_INLINE DeviceArenaResource::DeviceArenaResource(const DeviceArena& arena)
    : allocations_(std::make_shared<detail::ArenaAllocations>(arena)) {}

PENSTOCK_INLINE void* DeviceArenaResource::allocate_sync(std::size_t bytes, std::size_t alignment) {
  const Stream& stream = *allocations_->stream;
  void* const memory = take(bytes, alignment, stream.get());
  try {
    stream.synchronize();
  } catch (...) {
    put_back(memory, stream.get());
    throw;
  }
  return memory;
}
PENSTOCK_INLINE void DeviceArenaResource::deallocate_sync(void* memory, std::size_t /*bytes*/,
                                                          std::size_t /*alignment*/) noexcept {
  put_back(memory, allocations_->stream->get());
}

PENSTOCK_INLINE void* DeviceArenaResource::take(std::size_t bytes, std::size_t alignment,
                                                cudaStream_t stream) {
  DeviceArena& arena = allocations_->arena;
  const auto refuse = [&](const std::string& why) {
    throw PoolExhausted("DeviceArenaResource: " + why, bytes,
                        (arena.slots() - arena.free_slots()) * arena.slot_bytes(),
                        arena.slots() * arena.slot_bytes());
  };
  constexpr std::size_t kAlignment = 512;
  if (alignment > kAlignment)
    throw std::invalid_argument("DeviceArenaResource: an alignment of " +
                                std::to_string(alignment) + " was asked for, and slots have 512");
  if (bytes > arena.slot_bytes())
    refuse("a slot has " + std::to_string(arena.slot_bytes()) +
           " bytes: make the arena's slots larger");
  std::optional<DeviceSlot> slot = arena.try_acquire_named(stream);
  if (!slot) {
    arena.require_slot();
    refuse("all " + std::to_string(arena.slots()) +
           " slots are in use: deallocate earlier, or make an arena of more slots");
  }
  void* const memory = slot->data();
  const std::lock_guard lock(allocations_->mutex);
  allocations_->held[slot->index()] = std::move(*slot);
  return memory;
}

PENSTOCK_INLINE void DeviceArenaResource::put_back(void* memory, cudaStream_t stream) noexcept {
  DeviceSlot slot;  // stays empty if the memory belongs to no slot
  {
    const std::lock_guard lock(allocations_->mutex);
    for (DeviceSlot& held : allocations_->held)
      if (held && held.data() == memory) slot = std::move(held);
  }
  try {
    slot.release_after(stream);
  } catch (...) {  // Either the destructor parks the slot, or the slot is lost; the arena reports
                   // both.
  }
}

}  // namespace penstock
