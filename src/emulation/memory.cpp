// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "annotations.hpp"
#include "pool.hpp"
#include "report.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// The size with the inaccessible page after it.
std::size_t footprint(std::size_t bytes) {
  return whole_pages(bytes) + page_size();
}

std::uintptr_t number(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}
void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

/// Removes the memory and keeps its addresses reserved.
void reserve(void* data, std::size_t bytes) {
  // NOLINTNEXTLINE(bugprone-unused-return-value): MAP_FIXED returns the given address
  mmap(data, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/// The number of addresses to reserve for `bytes` of memory, with room for whole pages and gaps.
/// Reserved addresses use no memory.
std::size_t addresses_for(std::size_t bytes) {
  return 2 * bytes + (std::size_t{1} << 30);
}

}  // namespace

// ---- AddressSpace

AddressSpace::AddressSpace(std::size_t bytes, int sharing, const FreshMemory& fresh)
    : sharing_(sharing), fresh_(&fresh), bytes_(whole_pages(bytes)) {
  void* base = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    throw OutOfResources(
        "cannot reserve " + std::to_string(bytes_) +
        " bytes of addresses for emulated memory: raise the limit of the process (ulimit -v), or "
        "lower device_bytes, pinned_bytes or devices (PENSTOCK_EMULATION, docs/emulation.md)");
  base_ = number(base);
  free_[base_] = bytes_;
}

AddressSpace::~AddressSpace() {
  // The next mapping at these addresses must not be poisoned.
  for (const auto& [base, mapping] : mapped_) unpoison(pointer(base), whole_pages(mapping.bytes));
  if (bytes_ != 0) munmap(pointer(base_), bytes_);
}

AddressSpace::AddressSpace(AddressSpace&& other) noexcept
    : sharing_(other.sharing_),
      fresh_(other.fresh_),
      base_(std::exchange(other.base_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::move(other.mapped_)),
      free_(std::move(other.free_)) {}

void* AddressSpace::map(std::size_t bytes, const FileBytes* shared) {
  const std::size_t wanted = footprint(bytes);
  if (wanted < bytes) return nullptr;  // The sum overflowed.
  auto gap = free_.begin();
  while (gap != free_.end() && gap->second < wanted) ++gap;
  if (gap == free_.end()) return nullptr;
  const std::uintptr_t base = gap->first;
  // This makes a new mapping instead of calling mprotect, so that ThreadSanitizer forgets the
  // earlier accesses to these addresses.
  const bool mapped = shared == nullptr ? fresh_->map(pointer(base), whole_pages(bytes), sharing_)
                                        : mmap(pointer(base), whole_pages(bytes), kReadWrite,
                                               MAP_SHARED | MAP_NORESERVE | MAP_FIXED, shared->file,
                                               shared->offset) != MAP_FAILED;
  if (!mapped) {
    reserve(pointer(base), whole_pages(bytes));
    return nullptr;
  }
  const std::size_t rest = gap->second - wanted;
  free_.erase(gap);
  if (rest != 0) free_[base + wanted] = rest;
  mapped_[base] = {bytes, detects_races() ? std::make_unique<Life>() : nullptr};
  poison(pointer(base + bytes), whole_pages(bytes) - bytes);
  return pointer(base);
}

bool AddressSpace::move_to_file(void* data, std::size_t bytes, const FileBytes& shared) {
  const std::size_t length = whole_pages(bytes);
  void* const copy =
      mmap(nullptr, length, kReadWrite, MAP_SHARED | MAP_NORESERVE, shared.file, shared.offset);
  if (copy == MAP_FAILED) return false;
  std::memcpy(copy, data, bytes);
  munmap(copy, length);
  // This avoids mmap of the C library, so that ThreadSanitizer keeps the earlier accesses to the
  // memory.
  return syscall(SYS_mmap, data, length, kReadWrite, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                 shared.file, shared.offset) != -1;
}

void AddressSpace::unmap(void* data, std::size_t bytes) {
  mapped_.erase(number(data));
  unpoison(data, whole_pages(bytes));
  reserve(data, whole_pages(bytes));
  auto gap = free_.emplace(number(data), footprint(bytes)).first;
  const auto after = std::next(gap);
  if (after != free_.end() && gap->first + gap->second == after->first) {
    gap->second += after->second;
    free_.erase(after);
  }
  if (gap != free_.begin()) {
    const auto before = std::prev(gap);
    if (before->first + before->second == gap->first) {
      before->second += gap->second;
      free_.erase(gap);
    }
  }
}

bool AddressSpace::holds(const void* address) const {
  return number(address) >= base_ && number(address) - base_ < bytes_;
}

AddressSpace::Mappings::const_iterator AddressSpace::find(const void* address) const {
  const auto after = mapped_.upper_bound(number(address));
  if (after == mapped_.begin()) return mapped_.end();
  const auto before = std::prev(after);
  return number(address) - before->first < before->second.bytes ? before : mapped_.end();
}

bool AddressSpace::mapped(const void* data, std::size_t bytes) const {
  const auto found = find(data);
  return found != mapped_.end() && bytes <= found->second.bytes - (number(data) - found->first);
}

Life* AddressSpace::life(const void* address) const {
  const auto found = find(address);
  return found == mapped_.end() ? nullptr : found->second.life.get();
}

// ---- Memory

Memory::Memory(const Options& options)
    : machine_(options.machine),
      fresh_(fresh_byte(options)),
      pinned_space_(addresses_for(machine_.pinned_bytes), MAP_SHARED, fresh_),
      device_used_(static_cast<std::size_t>(machine_.devices)) {
  for (int device = 0; device < machine_.devices; ++device)
    device_spaces_.emplace_back(addresses_for(machine_.device_bytes), MAP_PRIVATE, fresh_);
}

AddressSpace& Memory::space(Origin origin, int device) {
  return origin == Origin::pinned ? pinned_space_
                                  : device_spaces_[static_cast<std::size_t>(device)];
}

bool Memory::reserved(const void* address) const {
  for (const AddressSpace& space : device_spaces_)
    if (space.holds(address)) return true;
  return pinned_space_.holds(address);
}

std::size_t& Memory::used(const Allocation& allocation) {
  return allocation.page_locked() ? pinned_used_
                                  : device_used_[static_cast<std::size_t>(allocation.device)];
}

bool Memory::fits(const Allocation& request) {
  const std::size_t limit = request.page_locked() ? machine_.pinned_bytes : machine_.device_bytes;
  return request.bytes <= limit && used(request) <= limit - request.bytes;
}

cudaError_t Memory::allocate(Allocation request, void** data) {
  if (!fits(request)) return cudaErrorMemoryAllocation;
  request.data = space(request.origin, request.device).map(request.bytes);
  if (request.data == nullptr) return cudaErrorMemoryAllocation;
  used(request) += request.bytes;
  list(request);
  if (request.origin == Origin::graph) poison(request.data, request.bytes);  // until begin_use
  *data = request.data;
  return cudaSuccess;
}

cudaError_t Memory::enroll(void* data, std::size_t bytes, unsigned flags, int device) {
  const Range range = classify(data, bytes);
  if (!range.valid || range.allocation != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
  const Allocation request{data, bytes, Origin::registered, device, flags};
  if (!fits(request)) return cudaErrorMemoryAllocation;
  used(request) += bytes;
  list(request);
  return cudaSuccess;
}

void Memory::release(void* data) {
  const Allocation allocation = *at(data);
  unlist(data);
  if (allocation.origin != Origin::opened) used(allocation) -= allocation.bytes;
  if (allocation.origin == Origin::registered) return;
  forget_blocks(data);
  space(allocation.origin, allocation.device).unmap(data, allocation.bytes);
  ++unmappings_;
}

const Allocation* Memory::find(const void* address) const {
  auto after = allocations_.upper_bound(number(address));
  if (after == allocations_.begin()) return nullptr;
  const Allocation& candidate = std::prev(after)->second;
  return number(address) - number(candidate.data) < candidate.bytes ? &candidate : nullptr;
}

const Allocation* Memory::at(const void* address) const {
  const auto found = allocations_.find(number(address));
  return found == allocations_.end() ? nullptr : &found->second;
}

Range Memory::classify(const void* data, std::size_t bytes) const {
  if (const Allocation* allocation = find(data)) {
    const std::size_t offset = number(data) - number(allocation->data);
    return {bytes <= allocation->bytes - offset, allocation};
  }
  if (data == nullptr || reserved(data)) return {};          // It was freed, or never allocated.
  if (bytes > ~std::uintptr_t{0} - number(data)) return {};  // It exceeds the address space.
  const auto after = allocations_.upper_bound(number(data));
  const bool reaches_into_one =
      after != allocations_.end() && number(after->second.data) - number(data) < bytes;
  return {!reaches_into_one, nullptr};
}

bool Memory::reserve_for_pool(int device, std::size_t bytes) {
  const Allocation request{nullptr, bytes, Origin::pool, device};
  if (!fits(request)) return false;
  used(request) += bytes;
  return true;
}

void Memory::give_back_for_pool(int device, std::size_t bytes) {
  device_used_[static_cast<std::size_t>(device)] -= bytes;
}

void* Memory::map_for_pool(int device, std::size_t bytes, const std::shared_ptr<SharedFile>& file) {
  AddressSpace& of_device = space(Origin::pool, device);
  void* data = nullptr;
  if (!file) {
    data = of_device.map(bytes);
  } else if (auto block = SharedBlock::make(file, bytes, device)) {
    const FileBytes shared{file->descriptor(), block->data_offset()};
    data = of_device.map(bytes, &shared);
    if (data != nullptr) {
      fresh_.fill(data, bytes);
      shared_[number(data)] = std::move(block);
    }
  } else {
    report("a pool that processes share gets no more memory: " + why_no_file());
  }
  if (data != nullptr) poison(data, bytes);  // until begin_use
  return data;
}

void Memory::unmap_for_pool(int device, void* data, std::size_t bytes) {
  forget_blocks(data);
  space(Origin::pool, device).unmap(data, bytes);
  ++unmappings_;
}

// ---- Memory that processes share

SharedBlock* Memory::shared(const void* data) const {
  const auto found = shared_.find(number(data));
  return found == shared_.end() ? nullptr : found->second.get();
}

SharedBlock* Memory::share(const Allocation& allocation) {
  if (SharedBlock* const already = shared(allocation.data)) return already;
  const std::shared_ptr<SharedFile> file = SharedFile::create(SharedKind::memory, 0);
  if (!file) return nullptr;
  auto block = SharedBlock::make(file, allocation.bytes, allocation.device);
  if (!block) return nullptr;
  block->next_life();
  to_move_.push_back(allocation.data);
  return (shared_[number(allocation.data)] = std::move(block)).get();
}

void Memory::move_to_blocks() {
  for (void* const data : to_move_) {
    SharedBlock& block = *shared(data);
    const FileBytes bytes{block.file().descriptor(), block.data_offset()};
    if (space(Origin::device, at(data)->device).move_to_file(data, block.bytes(), bytes)) {
      block.begin(block.life());
    } else {
      block.end_all();
      report("the system has no addresses to share memory with other processes");
    }
  }
  to_move_.clear();
}

void Memory::end_sharing() {
  for (const auto& [address, block] : shared_) block->end_all();
}

OpenedBlock* Memory::opened(const void* data) const {
  const auto found = opened_.find(number(data));
  return found == opened_.end() ? nullptr : found->second.get();
}

void* Memory::find_opened(const InterprocessHandle& handle) const {
  for (const auto& [address, block] : opened_)
    if (block->is(handle) && at(pointer(address))->origin == Origin::opened)
      return pointer(address);
  return nullptr;
}

void* Memory::open(Allocation request, const SharedFile& file, std::unique_ptr<OpenedBlock> block) {
  const FileBytes bytes{file.descriptor(), block->data_offset()};
  request.mapped = block->bytes();
  request.data = space(request.origin, request.device).map(request.mapped, &bytes);
  if (request.data == nullptr) return nullptr;
  list(request);
  opened_[number(request.data)] = std::move(block);
  return request.data;
}

bool Memory::usable(const void* data) const {
  if (opened_.empty()) return true;
  const auto after = opened_.upper_bound(number(data));
  if (after == opened_.begin()) return true;
  const auto& [begin, block] = *std::prev(after);
  return number(data) - begin >= block->bytes() || block->usable();
}

void Memory::forget_blocks(void* data) {
  to_move_.erase(std::remove(to_move_.begin(), to_move_.end(), data), to_move_.end());
  shared_.erase(number(data));
  opened_.erase(number(data));
}

// ---- Lifetime of stream-ordered memory

FreeWork Allocation::free() const {
  return {data, bytes, life, !pool || !pool->imported()};
}

void Memory::begin_use(const AllocateWork& allocation) const {
  unpoison(allocation.data, allocation.bytes);
  if (allocation.life != 0)
    if (SharedBlock* const block = shared(allocation.data)) block->begin(allocation.life);
  if (Life* const of_block = life(allocation.data))
    of_block->allocated(allocation.data, allocation.bytes);
}

void Memory::renew(const FreeWork& free) const {
  if (free.of_this_process) {
    unpoison(free.data, free.bytes);
    free.life == 0 ? fresh_.renew(free.data, free.bytes) : fresh_.fill(free.data, free.bytes);
  }
  poison(free.data, free.bytes);
}

void Memory::end_use(const FreeWork& free) const {
  if (free.life != 0)
    if (SharedBlock* const block = shared(free.data)) block->end(free.life);
}

void Memory::note_free(const FreeWork& free) const {
  if (Life* const of_block = life(free.data)) of_block->freed(free.data, free.bytes);
}

void Memory::note_use(const void* address) const {
  if (const Life* const of_block = life(address)) of_block->used();
}

Life* Memory::life(const void* address) const {
  if (!detects_races()) return nullptr;
  for (const AddressSpace& of_device : device_spaces_)
    if (of_device.holds(address)) return of_device.life(address);
  return nullptr;
}

void Memory::list(const Allocation& allocation) {
  allocations_[number(allocation.data)] = allocation;
}

void Memory::unlist(void* data) {
  const auto found = allocations_.find(number(data));
  if (found->second.managed) advice_.forget(data, found->second.bytes);
  allocations_.erase(found);
}

bool Memory::accessible(const void* data, std::size_t bytes) const {
  for (const AddressSpace& space : device_spaces_)
    if (space.holds(data)) return space.mapped(data, bytes);
  return !pinned_space_.holds(data) || pinned_space_.mapped(data, bytes);
}

std::size_t Memory::device_used(int device) const {
  return device_used_[static_cast<std::size_t>(device)];
}

}  // namespace penstock::emulation::detail
