// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "stream.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

/// The first page of a pool's file.
struct PoolHeader {
  static constexpr std::uint64_t kMagic = 0x3150'6b63'6f74'736e;
  std::uint64_t magic;
  std::int32_t device;
};

}  // namespace

std::shared_ptr<SharedFile> make_pool_file(int device) {
  std::shared_ptr<SharedFile> file = SharedFile::create(SharedKind::pool, page_size());
  const SharedPages page = file ? SharedPages(*file, 0, sizeof(PoolHeader)) : SharedPages();
  if (!page) return nullptr;
  new (page.data()) PoolHeader{PoolHeader::kMagic, device};
  return file;
}

std::optional<int> device_of_pool_file(const SharedFile& file) {
  const SharedPages page(file, 0, sizeof(PoolHeader));
  if (!page || static_cast<const PoolHeader*>(page.data())->magic != PoolHeader::kMagic) return {};
  return static_cast<const PoolHeader*>(page.data())->device;
}

Pool::~Pool() {
  for (const std::vector<Block>* blocks : {&cached_, &left_})
    for (const Block& block : *blocks) memory_.unmap_for_pool(device_, block.data, block.bytes);
  memory_.give_back_for_pool(device_, reserved_);
}

bool Pool::reusable(const Block& block, const Stream& stream) const {
  return block.freed.stream.get() == &stream || block.settled ||
         (opportunistic_ != 0 && block.freed.reached());
}

/// Returns the smallest cached block that can be reused and has at least `bytes` and at most `most`
/// bytes.
std::size_t Pool::find(std::size_t bytes, std::size_t most, const Stream& stream) const {
  std::size_t best = kNone;
  for (std::size_t i = 0; i < cached_.size(); ++i) {
    const std::size_t size = cached_[i].bytes;
    if (size < bytes || size > most || !reusable(cached_[i], stream)) continue;
    if (best == kNone || size < cached_[best].bytes) best = i;
  }
  return best;
}

std::size_t Pool::find_largest(const Stream& stream) const {
  std::size_t best = kNone;
  for (std::size_t i = 0; i < cached_.size(); ++i)
    if (reusable(cached_[i], stream) && (best == kNone || cached_[i].bytes > cached_[best].bytes))
      best = i;
  return best;
}

cudaError_t Pool::allocate(std::size_t bytes, const Stream& stream, void** data, Mark* after) {
  // The granularity lets allocations of nearly the same size share blocks.
  const std::size_t wanted = (bytes + 511) / 512 * 512;
  if (wanted < bytes) return cudaErrorMemoryAllocation;
  const std::size_t twice = wanted > kNone / 2 ? kNone : 2 * wanted;
  const std::size_t cached = find(wanted, twice, stream);
  Allocation allocation{nullptr, bytes, Origin::pool, device_, 0, Ref<Pool>(this), wanted};
  allocation.managed = place_.managed;
  if (cached != kNone) {
    allocation.data = cached_[cached].data;
    allocation.mapped = cached_[cached].bytes;
    *after = std::move(cached_[cached].freed);
    cached_.erase(cached_.begin() + static_cast<std::ptrdiff_t>(cached));
  } else {
    allocation.data = map(wanted, stream);
    if (allocation.data == nullptr) return cudaErrorMemoryAllocation;
  }
  used_ += allocation.mapped;
  used_high_ = std::max(used_high_, used_);
  if (SharedBlock* const block = memory_.shared(allocation.data))
    allocation.life = block->next_life();
  memory_.list(allocation);
  if (place_.managed)
    memory_.advice().change(allocation.data, bytes,
                            [&](PageAdvice& pages) { pages.preferred = place_.location; });
  *data = allocation.data;
  return cudaSuccess;
}

/// Maps a new block. Returns null if there is no room for it.
void* Pool::map(std::size_t bytes, const Stream& stream) {
  unmap_left();
  if (!gather(bytes, stream)) {
    trim(0);
    if (!gather(bytes, stream)) return nullptr;
  }
  void* const data = memory_.map_for_pool(device_, bytes, file_);
  if (data != nullptr) spare_ -= bytes;
  return data;
}

/// Makes this many bytes spare, first from blocks that can be reused, then from the device.
bool Pool::gather(std::size_t bytes, const Stream& stream) {
  while (spare_ < bytes) {
    std::size_t block = find(bytes - spare_, kNone, stream);
    if (block == kNone) block = find_largest(stream);
    if (block == kNone) break;
    take_apart(block);
  }
  const std::size_t missing = spare_ < bytes ? bytes - spare_ : 0;
  if (max_bytes_ != 0 && (missing > max_bytes_ || reserved_ > max_bytes_ - missing)) return false;
  if (!memory_.reserve_for_pool(device_, missing)) return false;
  spare_ += missing;
  reserved_ += missing;
  reserved_high_ = std::max(reserved_high_, reserved_);
  return true;
}

/// Makes the bytes of a cached block spare.
void Pool::take_apart(std::size_t block) {
  spare_ += cached_[block].bytes;
  left_.push_back(std::move(cached_[block]));
  cached_.erase(cached_.begin() + static_cast<std::ptrdiff_t>(block));
  unmap_left();
}

void Pool::unmap_left() {
  for (std::size_t i = 0; i < left_.size();) {
    if (!left_[i].done()) {
      ++i;
      continue;
    }
    memory_.unmap_for_pool(device_, left_[i].data, left_[i].bytes);
    left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Pool::import(std::size_t bytes, std::unique_ptr<OpenedBlock> block, void** data) {
  Allocation request{nullptr, bytes, Origin::pool, device_, 0, Ref<Pool>(this)};
  *data = memory_.open(request, *file_, std::move(block));
  if (*data == nullptr) return;
  used_ += memory_.at(*data)->mapped;
  used_high_ = std::max(used_high_, used_);
}

void Pool::free(const Allocation& allocation, Mark freed) {
  const bool settled = !freed.stream;
  Block block{allocation.data, allocation.mapped, allocation.allocated, std::move(freed), settled};
  used_ -= block.bytes;
  memory_.unlist(block.data);
  // Memory that another process has allocated is not reused here.
  (imported_ ? left_ : cached_).push_back(std::move(block));
}

void Pool::trim(std::size_t keep) {
  unmap_left();
  const auto give_back = [&](std::size_t bytes) {
    memory_.give_back_for_pool(device_, bytes);
    reserved_ -= bytes;
    spare_ -= bytes;
  };
  if (reserved_ > keep) give_back(std::min(spare_, reserved_ - keep));
  for (std::size_t i = 0; i < cached_.size() && reserved_ > keep;) {
    if (!cached_[i].done()) {
      ++i;
      continue;
    }
    const std::size_t bytes = cached_[i].bytes;
    take_apart(i);
    give_back(bytes);
  }
}

cudaMemAccessFlags Pool::access(int device) const {
  if (device == device_) return cudaMemAccessFlagsProtReadWrite;
  const auto found = access_.find(device);
  if (found != access_.end()) return found->second;
  return place_.managed ? cudaMemAccessFlagsProtReadWrite : cudaMemAccessFlagsProtNone;
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
    case cudaMemPoolAttrUsedMemHigh:  // The high-water marks can only be reset.
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
