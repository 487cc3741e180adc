// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory of the emulated machine: which addresses are whose. Device, managed and page-locked
// memory each lie in a reserved range of addresses of their own, so that every pointer can be told
// apart and checked. Freed memory is unmapped: whoever touches it crashes, and AddressSanitizer
// reports what lies behind the end of an allocation. Everything here is used under the runtime's
// lock.

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

namespace penstock::emulation::detail {

class Pool;

/// Bytes of a file in memory.
struct FileBytes {
  int file;
  off_t offset;
};

/// A reserved range of addresses, handed out in whole pages with an inaccessible page after each.
class AddressSpace {
 public:
  /// `sharing`: MAP_PRIVATE, or MAP_SHARED for memory that a forked child has in common with its
  /// parent. `fresh` must last as long.
  AddressSpace(std::size_t bytes, int sharing, const FreshMemory& fresh);
  ~AddressSpace();
  AddressSpace(AddressSpace&& other) noexcept;
  AddressSpace& operator=(AddressSpace&&) = delete;

  /// Fresh readable and writable memory; null when there is no room. `shared`: these bytes, as they
  /// are, in place of fresh ones.
  void* map(std::size_t bytes, const FileBytes* shared = nullptr);
  /// Puts bytes of a file in the place of mapped memory, with what the memory holds. Nobody writes
  /// it meanwhile. False: the system does not let it, and the memory is as it was.
  bool move_to_file(void* data, std::size_t bytes, const FileBytes& shared);
  void unmap(void* data, std::size_t bytes);
  /// Whether the range reserves this address, mapped or not.
  bool holds(const void* address) const;
  bool mapped(const void* data, std::size_t bytes) const;
  /// Of the mapped memory that holds this address. Null when there is none, and unless the program
  /// detects races.
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
  Mappings mapped_;                             // by address
  std::map<std::uintptr_t, std::size_t> free_;  // bytes by address, never adjacent
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
  Ref<Pool> pool{};        ///< of Origin::pool: a destroyed pool lasts while it has allocations
  std::size_t mapped = 0;  ///< of Origin::pool: size of the pool's block, at least `bytes`
  Mark allocated{};        ///< of Origin::pool: where the allocation is executed
  bool managed = false;    ///< memory of the host and of every device
  std::uint64_t life = 0;  ///< of Origin::pool: number in its SharedBlock; 0: nobody can open it

  bool page_locked() const { return origin == Origin::pinned || origin == Origin::registered; }
  bool on_device() const { return !page_locked(); }
  /// What its stream-ordered free does.
  FreeWork free() const;
};

/// What a range of bytes that a call was given is.
struct Range {
  bool valid = false;  ///< inside one allocation, or nothing that the runtime knows of
  const Allocation* allocation = nullptr;  ///< null: pageable host memory
};

class Memory {
 public:
  explicit Memory(const Options& options);

  /// Allocates; fails with cudaErrorMemoryAllocation at the limit of the machine.
  cudaError_t allocate(Allocation request, void** data);
  /// Takes page-locked memory of the program's own under watch.
  cudaError_t enroll(void* data, std::size_t bytes, unsigned flags, int device);
  /// Forgets the allocation and unmaps what was mapped for it. `data` must be its start.
  void release(void* data);

  /// The allocation that holds this address, or null.
  const Allocation* find(const void* address) const;
  /// The allocation that starts here, or null.
  const Allocation* at(const void* address) const;
  Range classify(const void* data, std::size_t bytes) const;

  /// Bytes of a device that a pool holds: they count as used until they are given back. False when
  /// the device does not have as many.
  bool reserve_for_pool(int device, std::size_t bytes);
  void give_back_for_pool(int device, std::size_t bytes);
  /// Addresses for bytes that the pool holds; null when there are none. `file`: a new block of it.
  void* map_for_pool(int device, std::size_t bytes, const std::shared_ptr<SharedFile>& file);
  void unmap_for_pool(int device, void* data, std::size_t bytes);
  /// Lists or unlists a pool's memory as an allocation.
  void list(const Allocation& allocation);
  void note_allocation(void* data, Mark executed) {
    allocations_.at(reinterpret_cast<std::uintptr_t>(data)).allocated = std::move(executed);
  }
  void unlist(void* data);

  // ---- Memory that other processes open, and of other processes
  /// The block that starts here, or null: other processes cannot open it.
  SharedBlock* shared(const void* data) const;
  /// Lets other processes open an allocation of Origin::device. Its bytes are in the block from the
  /// next `move_to_blocks` on. Null when the system does not let it; errno says why.
  SharedBlock* share(const Allocation& allocation);
  bool waits_to_move() const { return !to_move_.empty(); }
  /// To be called while nobody touches device memory, which others may open from now on.
  void move_to_blocks();
  /// Other processes may not use anything of this one any more.
  void end_sharing();
  /// The memory of another process that starts here, or null.
  OpenedBlock* opened(const void* data) const;
  /// The same by what it is, where it is.
  void* find_opened(const InterprocessHandle& handle) const;
  /// Maps it: its address, or null where there is no room. `request` says the rest.
  void* open(Allocation request, const SharedFile& file, std::unique_ptr<OpenedBlock> block);
  /// Whether all that the bytes are of, if it is of another process, may be used. A message says
  /// why not, once.
  bool usable(const void* data) const;

  /// What the program said about managed memory.
  Advice& advice() { return advice_; }

  /// The program may touch this stream-ordered memory from here on.
  void begin_use(const AllocateWork& allocation) const;
  /// It has freed the memory, which stays mapped. Other processes may not use it from here on.
  void end_use(const FreeWork& free) const;
  /// Whoever gets the memory next finds nothing of what it held. Needs no lock.
  void renew(const FreeWork& free) const;
  /// For race detection: the free was executed; the device works with what is at this address.
  void note_free(const FreeWork& free) const;
  void note_use(const void* address) const;

  /// How often memory was unmapped so far: while this stays, what was mapped still is.
  std::uint64_t unmappings() const { return unmappings_; }
  /// False when the bytes are an address of the machine's with no memory behind it.
  bool accessible(const void* data, std::size_t bytes) const;

  std::size_t device_used(int device) const;
  /// Of all devices.
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
  std::vector<void*> to_move_;  // memory that is shared from the next `move_to_blocks` on
  Advice advice_;
};

}  // namespace penstock::emulation::detail
