// SPDX-License-Identifier: Apache-2.0
#pragma once

// A memory pool of stream-ordered allocation. An address is assigned at submission. The stream that
// freed memory can reuse it at once, because the order of the stream makes that safe. Other streams
// can reuse it after the free has been executed (cudaMemPoolReuseAllowOpportunistic) or after the
// host has waited for it. A block that fits is reused as it is; otherwise the bytes of blocks are
// reused at another address, as a GPU remaps its memory. Cached memory beyond the release threshold
// is returned at the next synchronisation. Use it with the runtime's lock held.

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

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// The place of a pool's memory: a device, or managed memory with or without a preferred location.
struct PoolPlace {
  bool managed = false;
  PageLocation location;

  auto operator<=>(const PoolPlace&) const = default;
  /// The device whose memory is used: device 0 if the location is not a device.
  int device() const { return location.type == cudaMemLocationTypeDevice ? location.id : 0; }
};

class Pool : public Counted {
 public:
  /// `file` contains the memory if other processes can open it.
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
  bool exported = false;  ///< another process may know of it
  int device() const { return device_; }
  const PoolPlace& place() const { return place_; }
  /// The file with the pool's memory. It is null if the pool is not shared with other processes.
  const std::shared_ptr<SharedFile>& file() const { return file_; }
  /// Whether another process allocates the memory.
  bool imported() const { return imported_; }

  /// Allocates memory for use in `stream`. If the memory was used before, `after` is the end of
  /// that use.
  cudaError_t allocate(std::size_t bytes, const Stream& stream, void** data, Mark* after);
  /// Adds memory of an imported pool. `*data` is null if there are no addresses for it.
  void import(std::size_t bytes, std::unique_ptr<OpenedBlock> block, void** data);
  /// Frees the allocation at the mark `freed`.
  void free(const Allocation& allocation, Mark freed);
  /// The host has waited for the frees whose marks `covers(mark)` accepts, so their memory can be
  /// reused in every stream.
  template <class Covers>
  void settle(Covers covers) {
    for (Block& block : cached_) block.settled = block.settled || covers(block.freed);
  }
  /// Returns cached memory to the system until at most `keep` bytes are mapped, as far as the frees
  /// have been executed.
  void trim(std::size_t keep);
  void trim_to_threshold() { trim(threshold_); }

  // ---- Access of devices: stored for queries only, since every device can access the memory.
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

    /// Whether no task in a stream concerns the memory any more, so that it can be unmapped. A
    /// program may have freed it in another stream without waiting for the allocation.
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
  std::size_t max_bytes_;  // 0: the capacity of the device
  std::shared_ptr<SharedFile> file_;
  bool imported_;
  std::vector<Block> cached_;
  std::vector<Block> left_;  // mapped until they are freed; other blocks use their bytes
  std::size_t spare_ = 0;    // reserved bytes that belong to no block
  std::uint64_t threshold_ = 0;
  std::uint64_t used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;
  std::map<int, cudaMemAccessFlags> access_;  // by device, where it was set
  int follow_events_ = 1, opportunistic_ = 1, internal_dependencies_ = 1;
};

/// Creates a file for a pool of this device that other processes open. Returns null if the system
/// refuses.
std::shared_ptr<SharedFile> make_pool_file(int device);
/// Returns the device of such a pool, or nothing if the file is not a pool's.
std::optional<int> device_of_pool_file(const SharedFile& file);

/// The pools of one place.
struct PoolChoice {
  Ref<Pool> own;      ///< the default pool
  Ref<Pool> current;  ///< the pool that the program has set, or the default one
};

}  // namespace penstock::emulation::detail
