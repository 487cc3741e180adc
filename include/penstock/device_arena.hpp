// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceArena: a fixed set of device buffers with stable addresses, reused in stream order.
//
//   penstock::DeviceArena arena{2, bytes};
//   penstock::DeviceSlot slot = arena.acquire(copy_stream);   // waits for the slot's last readers
//   cudaMemcpyAsync(slot.data(), host, bytes, cudaMemcpyHostToDevice, copy_stream);
//   ...                                                       // kernels on compute_stream
//   slot.release_after(compute_stream);                       // the host waits for nothing

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <penstock/detail/inline.hpp>
#include <span>
#include <stop_token>
#include <utility>

namespace penstock {

namespace detail {
class DeviceArenaCore;
}

/// One buffer of a DeviceArena, held: move-only; a moved-from slot is empty. May outlive its arena.
class DeviceSlot {
 public:
  DeviceSlot() = default;
  DeviceSlot(DeviceSlot&&) noexcept = default;
  DeviceSlot& operator=(DeviceSlot&& other) noexcept {
    DeviceSlot taken(std::move(other));
    std::swap(core_, taken.core_);
    std::swap(index_, taken.index_);
    std::swap(writer_, taken.writer_);
    return *this;
  }
  /// As release_after(writer): what the acquiring stream holds now comes before the next writer.
  ~DeviceSlot() { release(); }

  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// Device memory, 512-byte aligned; the same address for an index during the arena's life.
  std::byte* data() const noexcept;
  /// 0 ... slots - 1.
  std::size_t index() const noexcept { return index_; }

  /// Gives the slot back now. Its next writer's stream waits for all that `stream` holds at this
  /// moment; the host waits for nothing. The slot is empty afterwards. When the moment cannot be
  /// marked, the host waits for the stream instead; when that fails too, the slot is never used
  /// again. In both cases CudaError is thrown.
  void release_after(cudaStream_t stream) { release_after(std::span(&stream, 1)); }
  /// The same for several streams of readers.
  void release_after(std::span<const cudaStream_t> streams);

 private:
  friend class DeviceArena;
  DeviceSlot(std::shared_ptr<detail::DeviceArenaCore> core, std::size_t index, cudaStream_t writer)
      : core_(std::move(core)), index_(index), writer_(writer) {}
  void release() noexcept;

  std::shared_ptr<detail::DeviceArenaCore> core_;
  std::size_t index_ = 0;
  cudaStream_t writer_ = nullptr;
};

/// All members may be called from any thread. After construction (and the first release on each
/// further stream of a slot) nothing allocates or blocks inside CUDA.
class DeviceArena {
 public:
  /// `slots` buffers of `slot_bytes` in one allocation on the current device. Throws CudaError (no
  /// memory, with the bytes asked for) or std::invalid_argument.
  DeviceArena(std::size_t slots, std::size_t slot_bytes);

  /// The slot that has been free for longest. All that is queued on `writer` from now on runs after
  /// the work that its last release named. Blocks this thread only while every slot is held by
  /// somebody.
  DeviceSlot acquire(cudaStream_t writer);
  /// The same; empty once stop is requested.
  std::optional<DeviceSlot> acquire(cudaStream_t writer, const std::stop_token& stop);
  /// The same; empty where acquire would block.
  std::optional<DeviceSlot> try_acquire(cudaStream_t writer);

  std::size_t slots() const noexcept;
  std::size_t slot_bytes() const noexcept;
  int device() const noexcept;
  /// Slots that can be acquired now.
  std::size_t free_slots() const;
  /// Slots given up because CUDA could not say when they are free (see DeviceSlot::release_after).
  std::size_t lost_slots() const;
  /// Throws the CudaError that took the last slot, once every slot is lost.
  void require_slot() const;

 private:
  std::shared_ptr<detail::DeviceArenaCore> core_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/device_arena.hpp>
#endif
