// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/pinned_pool_core.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/pinned_pool.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>

namespace penstock {

PENSTOCK_INLINE void detail::ReleaseEntry::operator()(PinnedEntry* entry) const noexcept {
  if (!entry->refused) return entry->core.release(entry);
  entry->core.lose(
      entry, {cudaErrorStreamCaptureUnsupported,
              "a page-locked block is lost: it was destroyed after release_after had refused its "
              "stream, and a copy may still read it"});
}

PENSTOCK_INLINE std::byte* PinnedBlock::data() const noexcept {
  return entry_ == nullptr ? nullptr : entry_->memory.data();
}

PENSTOCK_INLINE PinnedBlock::PinnedBlock(detail::PinnedEntry* entry, std::size_t size)
    : entry_(entry) {
  if (entry == nullptr) return;
  // Mostly both are so: unwritten, the cache line stays shared with the thread that returns blocks.
  if (entry->asked != size) entry->asked = size;
  if (entry->refused) entry->refused = false;
}

PENSTOCK_INLINE std::size_t PinnedBlock::size() const noexcept {
  return entry_ == nullptr ? 0 : entry_->asked;
}

PENSTOCK_INLINE void PinnedBlock::release_after_named(cudaStream_t stream) {
  if (entry_ == nullptr) return;
  entry_->refused = true;
  release_after(detail::resolve_usable(stream, "PinnedBlock::release_after"));
}

PENSTOCK_INLINE void PinnedBlock::release_after(const detail::ResolvedStream& stream) {
  if (detail::PinnedEntry* const entry = entry_.release()) entry->core.release_after(entry, stream);
}

PENSTOCK_INLINE void PinnedBlock::release_after_elsewhere(
    const detail::ResolvedStream& stream) noexcept {
  entry_->refused = true;
  try {
    stream.with_handle([&](cudaStream_t here) { release_after_named(here); });
  } catch (...) {  // The block is destroyed next, and lost: it says so when the pool runs out.
  }
}

PENSTOCK_INLINE void PinnedBlock::copy_to_named(void* device, std::size_t bytes,
                                                cudaStream_t stream) {
  if (bytes > size() || entry_ == nullptr)
    throw std::invalid_argument("PinnedBlock::copy_to: " + std::to_string(bytes) +
                                " bytes of a block of " + std::to_string(size()));
  const detail::ResolvedStream resolved = detail::resolve_usable(stream, "PinnedBlock::copy_to");
  detail::release_behind(
      [&] {
        detail::check(cudaMemcpyAsync(device, data(), bytes, cudaMemcpyHostToDevice, stream),
                      "cudaMemcpyAsync", bytes);
      },
      [&] { release_after(resolved); });
}

PENSTOCK_INLINE PinnedPool::PinnedPool(PinnedPoolOptions options)
    : core_(new detail::PinnedPoolCore(std::move(options))) {}
PENSTOCK_INLINE PinnedPool::~PinnedPool() {
  core_->orphan();
}

PENSTOCK_INLINE PinnedBlock PinnedPool::acquire(std::size_t bytes) {
  return acquire(bytes, std::stop_token{});
}
PENSTOCK_INLINE PinnedBlock PinnedPool::acquire(std::size_t bytes, const std::stop_token& stop) {
  return {core_->acquire(bytes, stop), bytes};
}
PENSTOCK_INLINE PinnedBlock PinnedPool::acquire(std::size_t bytes, const std::stop_token& stop,
                                                detail::WaitAhead& ahead) {
  return {core_->acquire(bytes, stop, &ahead), bytes};
}
PENSTOCK_INLINE PinnedBlock PinnedPool::try_acquire(std::size_t bytes) {
  return {core_->try_acquire(bytes), bytes};
}
PENSTOCK_INLINE void PinnedPool::reserve(std::size_t count, std::size_t bytes) {
  core_->reserve(count, bytes);
}
PENSTOCK_INLINE const PinnedPoolOptions& PinnedPool::options() const noexcept {
  return core_->options();
}
PENSTOCK_INLINE PinnedPoolStats PinnedPool::stats() const {
  return core_->stats();
}

}  // namespace penstock
