// SPDX-License-Identifier: Apache-2.0
#pragma once

// A memory pool of stream-ordered allocation. An address is given at submission. Memory that was
// freed is used again at once in the stream that freed it, whose order makes that safe, and in
// other streams when the free has been executed (cudaMemPoolReuseAllowOpportunistic) or the host
// has waited for it. A block that fits is used again as it is; otherwise the bytes of blocks are
// used again at another address, as a GPU maps its memory anew. What is cached beyond the release
// threshold goes back at the next synchronisation. Used under the runtime's lock.

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "advice.hpp"
#include "memory.hpp"
#include "task.hpp"

namespace penstock::emulation::detail {

/// What memory a pool has: of a device, or managed memory that prefers a location or none.
struct PoolPlace {
  bool managed = false;
  PageLocation location;

  auto operator<=>(const PoolPlace&) const = default;
  /// The device whose bytes are taken: device 0 when the location is no device.
  int device() const { return location.type == cudaMemLocationTypeDevice ? location.id : 0; }
};

class Pool : public Counted {
 public:
  /// `file`: other processes can open the memory, which is in this file.
  Pool(Memory& memory, const PoolPlace& place, std::size_t max_bytes,
       std::shared_ptr<SharedFile> file, bool imported)
      : memory_(memory),
        place_(place),
        device_(place.device()),
        max_bytes_(max_bytes),
        file_(std::move(file)),
        imported_(imported) {}
  ~Pool() override;

  std::uint64_t handle = 0;
  bool exported = false;  ///< another process may have been told of it
  int device() const { return device_; }
  const PoolPlace& place() const { return place_; }
  /// The file with its memory. Null: the pool is this process's alone.
  const std::shared_ptr<SharedFile>& file() const { return file_; }
  /// Another process allocates the memory.
  bool imported() const { return imported_; }

  /// Memory for use in `stream`. When it was used before, `after` is where that use ended.
  cudaError_t allocate(std::size_t bytes, const Stream& stream, void** data, Mark* after);
  /// Memory of an imported pool. `*data` is null when there are no addresses for it.
  void import(std::size_t bytes, std::unique_ptr<OpenedBlock> block, void** data);
  /// The allocation is free from `freed` on.
  void free(const Allocation& allocation, Mark freed);
  /// The host has waited for these frees: `covers(mark)` is true of where they were executed. Their
  /// memory can be used again in every stream.
  template <class Covers>
  void settle(Covers covers) {
    for (Block& block : cached_) block.settled = block.settled || covers(block.freed);
  }
  /// Gives cached memory back until no more than `keep` bytes are mapped, as far as the frees have
  /// been executed.
  void trim(std::size_t keep);
  void trim_to_threshold() { trim(threshold_); }

  // ---- Access of devices: kept for the program, every device reaches the memory.
  cudaMemAccessFlags access(int device) const;
  void set_access(int device, cudaMemAccessFlags flags) { access_[device] = flags; }

  cudaError_t set(cudaMemPoolAttr attribute, const void* value);
  cudaError_t get(cudaMemPoolAttr attribute, void* value) const;

 private:
  struct Block {
    void* data;
    std::size_t bytes;
    Mark allocated, freed;
    bool settled;  ///< the host has waited for the free

    /// Nothing in a stream is about the memory any more: it can be unmapped. A program may have
    /// freed it in another stream without waiting for the allocation.
    bool done() const { return allocated.reached() && freed.reached(); }
  };
  bool reusable(const Block& block, const Stream& stream) const;
  std::size_t find(std::size_t bytes, std::size_t most, const Stream& stream) const;
  std::size_t find_largest(const Stream& stream) const;
  void* map(std::size_t bytes, const Stream& stream);
  bool gather(std::size_t bytes, const Stream& stream);
  void take_apart(std::size_t block);
  void unmap_left();

  Memory& memory_;
  PoolPlace place_;
  int device_;
  std::size_t max_bytes_;  // 0: as much as the device has
  std::shared_ptr<SharedFile> file_;
  bool imported_;
  std::vector<Block> cached_;
  std::vector<Block> left_;  // mapped until they are freed; their bytes are used elsewhere
  std::size_t spare_ = 0;    // reserved bytes that no block has
  std::uint64_t threshold_ = 0;
  std::uint64_t used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;
  std::map<int, cudaMemAccessFlags> access_;  // by device, where it was set
  int follow_events_ = 1, opportunistic_ = 1, internal_dependencies_ = 1;
};

/// A file for a pool of this device that other processes open; null when the system has none.
std::shared_ptr<SharedFile> make_pool_file(int device);
/// The device of such a pool; nothing when the file is none of a pool.
std::optional<int> device_of_pool_file(const SharedFile& file);

/// The pools of one place.
struct PoolChoice {
  Ref<Pool> own;      ///< the default pool
  Ref<Pool> current;  ///< the pool that the program has set, or the default one
};

}  // namespace penstock::emulation::detail
