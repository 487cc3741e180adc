// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <algorithm>
#include <utility>

#include "stream.hpp"

namespace penstock::emulation::detail {

namespace {
constexpr std::size_t kNone = static_cast<std::size_t>(-1);
}

Pool::~Pool() {
  for (Block& block : cached_) memory_.unmap_for_pool(device_, block.data, block.bytes);
}

bool Pool::reusable(const Block& block, const Stream& stream) const {
  return block.freed.stream.get() == &stream || (opportunistic_ != 0 && block.freed.reached());
}

/// The smallest cached block that serves: not more than twice as large as asked for.
std::size_t Pool::find(std::size_t bytes, const Stream& stream) const {
  std::size_t best = kNone;
  for (std::size_t i = 0; i < cached_.size(); ++i) {
    const std::size_t size = cached_[i].bytes;
    if (size < bytes || size / 2 > bytes || !reusable(cached_[i], stream)) continue;
    if (best == kNone || size < cached_[best].bytes) best = i;
  }
  return best;
}

cudaError_t Pool::allocate(std::size_t bytes, const Stream& stream, void** data, Mark* after) {
  // The granularity lets allocations of nearly the same size share blocks.
  const std::size_t wanted = (bytes + 511) / 512 * 512;
  if (wanted < bytes) return cudaErrorMemoryAllocation;
  const std::size_t cached = find(wanted, stream);
  Allocation allocation{nullptr, bytes, Origin::pool, device_, 0, Ref<Pool>(this), wanted};
  if (cached != kNone) {
    allocation.data = cached_[cached].data;
    allocation.mapped = cached_[cached].bytes;
    *after = std::move(cached_[cached].freed);
    cached_.erase(cached_.begin() + static_cast<std::ptrdiff_t>(cached));
  } else {
    if (max_bytes_ != 0 && reserved_ + wanted > max_bytes_) trim(0);
    if (max_bytes_ != 0 && reserved_ + wanted > max_bytes_) return cudaErrorMemoryAllocation;
    allocation.data = memory_.map_for_pool(device_, wanted);
    if (allocation.data == nullptr) {
      trim(0);
      allocation.data = memory_.map_for_pool(device_, wanted);
    }
    if (allocation.data == nullptr) return cudaErrorMemoryAllocation;
    reserved_ += wanted;
    reserved_high_ = std::max(reserved_high_, reserved_);
  }
  used_ += allocation.mapped;
  used_high_ = std::max(used_high_, used_);
  memory_.list(allocation);
  *data = allocation.data;
  return cudaSuccess;
}

void Pool::free(const Allocation& allocation, Mark freed) {
  const Block block{allocation.data, allocation.mapped, std::move(freed)};
  used_ -= block.bytes;
  memory_.unlist(block.data);
  cached_.push_back(block);
}

void Pool::trim(std::size_t keep) {
  for (std::size_t i = 0; i < cached_.size() && reserved_ > keep;) {
    if (!cached_[i].freed.reached()) {
      ++i;
      continue;
    }
    memory_.unmap_for_pool(device_, cached_[i].data, cached_[i].bytes);
    reserved_ -= cached_[i].bytes;
    cached_.erase(cached_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

cudaError_t Pool::set(cudaMemPoolAttr attribute, const void* value) {
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
      follow_events_ = *static_cast<const int*>(value);
      return cudaSuccess;
    case cudaMemPoolReuseAllowOpportunistic:
      opportunistic_ = *static_cast<const int*>(value);
      return cudaSuccess;
    case cudaMemPoolReuseAllowInternalDependencies:
      internal_dependencies_ = *static_cast<const int*>(value);
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      threshold_ = *static_cast<const std::uint64_t*>(value);
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:  // The high marks can only be put back.
      if (*static_cast<const std::uint64_t*>(value) != 0) return cudaErrorInvalidValue;
      (attribute == cudaMemPoolAttrUsedMemHigh ? used_high_ : reserved_high_) =
          attribute == cudaMemPoolAttrUsedMemHigh ? used_ : reserved_;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t Pool::get(cudaMemPoolAttr attribute, void* value) const {
  const auto number = [value](std::uint64_t n) {
    *static_cast<std::uint64_t*>(value) = n;
    return cudaSuccess;
  };
  const auto flag = [value](int n) {
    *static_cast<int*>(value) = n;
    return cudaSuccess;
  };
  switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
      return flag(follow_events_);
    case cudaMemPoolReuseAllowOpportunistic:
      return flag(opportunistic_);
    case cudaMemPoolReuseAllowInternalDependencies:
      return flag(internal_dependencies_);
    case cudaMemPoolAttrReleaseThreshold:
      return number(threshold_);
    case cudaMemPoolAttrReservedMemCurrent:
      return number(reserved_);
    case cudaMemPoolAttrReservedMemHigh:
      return number(reserved_high_);
    case cudaMemPoolAttrUsedMemCurrent:
      return number(used_);
    case cudaMemPoolAttrUsedMemHigh:
      return number(used_high_);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace penstock::emulation::detail
