// SPDX-License-Identifier: Apache-2.0

#include "engine_memory.hpp"

#include <algorithm>
#include <bit>

namespace penstock::images {
namespace {

/// Sizes that differ a little become one size: rounded up to a quarter of a power of two.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_ceil(bytes) / 4, 256);
  return std::max(bytes + step - 1, step) / step * step;
}

}  // namespace

EngineMemory::~EngineMemory() {
  const CaptureModeGuard guard;
  for (const auto& block : blocks_) {
    if (kind_ == Kind::device)
      cudaFree(block->memory);
    else
      cudaFreeHost(block->memory);
  }
}

void* EngineMemory::take(std::size_t bytes, cudaStream_t stream) {
  const CaptureModeGuard guard;
  const std::lock_guard lock(mutex_);
  const std::size_t size = rounded(bytes);
  Block* const block = find(size);
  if (block == nullptr) return allocate(size);
  if (kind_ == Kind::device) block->freed.make_wait(stream);
  block->in_use = true;
  return block->memory;
}

/// The smallest free block, unless it is more than four times as large.
EngineMemory::Block* EngineMemory::find(std::size_t bytes) {
  Block* best = nullptr;
  for (const auto& block : blocks_) {
    if (block->in_use || block->bytes < bytes || block->bytes / 4 > bytes) continue;
    if (best != nullptr && best->bytes <= block->bytes) continue;
    if (kind_ == Kind::pinned && !block->freed.done()) continue;
    best = block.get();
  }
  return best;
}

void* EngineMemory::allocate(std::size_t bytes) {
  auto block = std::make_unique<Block>();
  blocks_.reserve(blocks_.size() + 1);
  if (kind_ == Kind::device)
    penstock::detail::check(cudaMalloc(&block->memory, bytes), "cudaMalloc", bytes);
  else
    penstock::detail::check(cudaHostAlloc(&block->memory, bytes, cudaHostAllocPortable),
                            "cudaHostAlloc", bytes);
  block->bytes = bytes;
  bytes_ += bytes;
  blocks_.push_back(std::move(block));
  return blocks_.back()->memory;
}

bool EngineMemory::give(void* memory, cudaStream_t stream) noexcept {
  const CaptureModeGuard guard;
  const std::lock_guard lock(mutex_);
  for (const auto& block : blocks_) {
    if (block->memory != memory || !block->in_use) continue;
    if (cudaEventRecord(block->freed.get(), penstock::detail::named(stream)) != cudaSuccess)
      return false;
    block->in_use = false;
    return true;
  }
  return false;
}

std::uint64_t EngineMemory::allocations() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

std::uint64_t EngineMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace penstock::images
