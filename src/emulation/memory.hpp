// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of the emulated machine and its allocations. Device, managed and page-locked memory
// each have a separate reserved range of addresses, so that every pointer can be classified and
// checked. Freed memory is unmapped, so an access to it crashes, and AddressSanitizer reports
// accesses after the end of an allocation. Use it with the runtime's lock held.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <penstock/emulation.hpp>
#include <utility>
#include <vector>

#include "advice.hpp"
#include "annotations.hpp"
#include "fresh_memory.hpp"
#include "reference.hpp"
#include "shared_block.hpp"
#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class Pool;

/// A range of a file in memory.
struct FileBytes {
  int file;
  off_t offset;
};

/// A reserved range of addresses. It is allocated in whole pages, with an inaccessible page after
/// each allocation.
class AddressSpace {
 public:
  /// `sharing`: MAP_PRIVATE, or MAP_SHARED for memory that a forked child shares with its parent.
  /// `fresh` must outlive this object.
  AddressSpace(std::size_t bytes, int sharing, const FreshMemory& fresh);
  ~AddressSpace();
  AddressSpace(AddressSpace&& other) noexcept;
  AddressSpace& operator=(AddressSpace&&) = delete;

  /// Maps fresh readable and writable memory. Returns null if there is no room. With `shared` it
  /// maps these bytes of a file, with their contents.
  void* map(std::size_t bytes, const FileBytes* shared = nullptr);
  /// Replaces mapped memory by bytes of a file, and keeps its contents. No thread may write it
  /// meanwhile. Returns false if the system refuses; then the memory is unchanged.
  bool move_to_file(void* data, std::size_t bytes, const FileBytes& shared);
  void unmap(void* data, std::size_t bytes);
  /// Whether the range reserves this address, mapped or not.
  bool holds(const void* address) const;
  bool mapped(const void* data, std::size_t bytes) const;
  /// Returns the Life of the mapped memory that contains this address. Returns null if there is
  /// none, or if the program does not detect races.
  Life* life(const void* address) const;

 private:
  struct Mapping {
    std::size_t bytes;
    std::unique_ptr<Life> life;
  };
  using Mappings = std::map<std::uintptr_t, Mapping>;
  Mappings::const_iterator find(const void* address) const;

  int sharing_;
  const FreshMemory* fresh_;
  std::uintptr_t base_ = 0;
  std::size_t bytes_ = 0;
  Mappings mapped_;                             // the mapped memory by address
  std::map<std::uintptr_t, std::size_t> free_;  // free ranges: bytes by address; never adjacent
};

enum class Origin {
  device,      ///< cudaMalloc
  pool,        ///< cudaMallocAsync
  graph,       ///< cudaMallocAsync in a captured stream
  managed,     ///< cudaMallocManaged
  opened,      ///< cudaIpcOpenMemHandle
  pinned,      ///< cudaHostAlloc
  registered,  ///< cudaHostRegister
};

struct Allocation {
  void* data = nullptr;
  std::size_t bytes = 0;
  Origin origin = Origin::device;
  int device = 0;
  unsigned flags = 0;
  Ref<Pool> pool{};        ///< for Origin::pool: a destroyed pool exists while it has allocations
  std::size_t mapped = 0;  ///< for Origin::pool: size of the pool's block, at least `bytes`
  Mark allocated{};        ///< for Origin::pool: the place where the allocation is executed
  bool managed = false;    ///< accessible from the host and every device
  std::uint64_t life = 0;  ///< for Origin::pool: number in its SharedBlock; 0: other processes
                           ///< cannot open it

  bool page_locked() const { return origin == Origin::pinned || origin == Origin::registered; }
  bool on_device() const { return !page_locked(); }
  /// Returns the work of its stream-ordered free.
  FreeWork free() const;
};

/// The classification of a range of bytes that a call was given.
struct Range {
  bool valid = false;                      ///< inside one allocation, or unknown to the runtime
  const Allocation* allocation = nullptr;  ///< null: pageable host memory
};

class Memory {
 public:
  explicit Memory(const Options& options);

  /// Allocates; fails with cudaErrorMemoryAllocation at the limit of the machine.
  cudaError_t allocate(Allocation request, void** data);
  /// Registers memory of the program as page-locked.
  cudaError_t enroll(void* data, std::size_t bytes, unsigned flags, int device);
  /// Removes the allocation and unmaps its memory. `data` must be its start.
  void release(void* data);

  /// Returns the allocation that contains this address, or null.
  const Allocation* find(const void* address) const;
  /// Returns the allocation that starts here, or null.
  const Allocation* at(const void* address) const;
  Range classify(const void* data, std::size_t bytes) const;

  /// Reserves bytes of a device for a pool. They count as used until they are given back. Returns
  /// false if the device has fewer free bytes.
  bool reserve_for_pool(int device, std::size_t bytes);
  void give_back_for_pool(int device, std::size_t bytes);
  /// Maps bytes that a pool has reserved. Returns null if there are no addresses. With `file` it
  /// maps a new block of that file.
  void* map_for_pool(int device, std::size_t bytes, const std::shared_ptr<SharedFile>& file);
  void unmap_for_pool(int device, void* data, std::size_t bytes);
  /// Adds memory of a pool to the list of allocations, or removes it.
  void list(const Allocation& allocation);
  void note_allocation(void* data, Mark executed) {
    allocations_.at(reinterpret_cast<std::uintptr_t>(data)).allocated = std::move(executed);
  }
  void unlist(void* data);

  // ---- Memory that is shared with other processes
  /// Returns the shared block that starts here, or null if other processes cannot open the memory.
  SharedBlock* shared(const void* data) const;
  /// Lets other processes open an allocation of Origin::device. The next `move_to_blocks` moves its
  /// bytes to the block. Returns null if the system refuses; errno has the reason.
  SharedBlock* share(const Allocation& allocation);
  bool waits_to_move() const { return !to_move_.empty(); }
  /// Moves the shared memory to its blocks, from where other processes can open it. Call it while
  /// no thread accesses device memory.
  void move_to_blocks();
  /// Ends the use of all memory of this process by other processes.
  void end_sharing();
  /// Returns the memory of another process that starts here, or null.
  OpenedBlock* opened(const void* data) const;
  /// Returns the address of the opened memory that `handle` describes, or null.
  void* find_opened(const InterprocessHandle& handle) const;
  /// Maps memory of another process. Returns its address, or null if there is no room. `request`
  /// has the other members of the allocation.
  void* open(Allocation request, const SharedFile& file, std::unique_ptr<OpenedBlock> block);
  /// Whether the memory at this address may be used. It may not if it belongs to another process
  /// that has freed it or ended; then a message says why, once.
  bool usable(const void* data) const;

  /// The program's advice about managed memory.
  Advice& advice() { return advice_; }

  /// Call it when a stream-ordered allocation is executed: the program may access the memory from
  /// then on.
  void begin_use(const AllocateWork& allocation) const;
  /// Call it when a stream-ordered free is executed. The memory stays mapped, but other processes
  /// may not use it any more.
  void end_use(const FreeWork& free) const;
  /// Replaces the contents of freed memory by fresh bytes. Needs no lock.
  void renew(const FreeWork& free) const;
  /// For race detection: records that the free was executed, or that the device uses this memory.
  void note_free(const FreeWork& free) const;
  void note_use(const void* address) const;

  /// The number of unmappings so far. While it does not change, all mapped memory stays mapped.
  std::uint64_t unmappings() const { return unmappings_; }
  /// Returns false if the address lies in a reserved range but has no memory.
  bool accessible(const void* data, std::size_t bytes) const;

  std::size_t device_used(int device) const;
  /// The used bytes of all devices.
  const std::vector<std::size_t>& device_used() const { return device_used_; }
  std::size_t device_total() const { return machine_.device_bytes; }
  std::size_t pinned_used() const { return pinned_used_; }
  const std::map<std::uintptr_t, Allocation>& all() const { return allocations_; }

 private:
  void forget_blocks(void* data);
  Life* life(const void* address) const;
  AddressSpace& space(Origin origin, int device);
  bool reserved(const void* address) const;
  std::size_t& used(const Allocation& allocation);
  bool fits(const Allocation& request);

  Machine machine_;
  FreshMemory fresh_;
  std::vector<AddressSpace> device_spaces_;
  AddressSpace pinned_space_;
  std::vector<std::size_t> device_used_;
  std::size_t pinned_used_ = 0;
  std::uint64_t unmappings_ = 0;
  std::map<std::uintptr_t, Allocation> allocations_;
  std::map<std::uintptr_t, std::unique_ptr<SharedBlock>> shared_;
  std::map<std::uintptr_t, std::unique_ptr<OpenedBlock>> opened_;
  std::vector<void*> to_move_;  // memory that the next `move_to_blocks` moves
  Advice advice_;
};

}  // namespace penstock::emulation::detail
