// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceArena: a fixed set of device buffers with stable addresses, reused in stream order.
//
//   penstock::DeviceArena arena{2, bytes};
//   penstock::DeviceSlot slot = arena.acquire(copy_stream);   // waits for the slot's last readers
//   cudaMemcpyAsync(slot.data(), host, bytes, cudaMemcpyHostToDevice, copy_stream);
//   ...                                                       // kernels on compute_stream
//   slot.release_after(compute_stream);                       // the host waits for nothing
//
// Streams may be of any kind: created, legacy default, per-thread default. A default stream is that
// of the device that is current when it is passed, and cudaStreamPerThread that of the thread that
// passes it, even if another thread releases the slot.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <penstock/upstream.hpp>
#include <span>
#include <stop_token>
#include <utility>

namespace penstock::inline PENSTOCK_ABI {

namespace detail {
class DeviceArenaCore;
class DeviceStage;
class DeviceTargets;
class Pipeline;
struct ResolvedStream;
}  // namespace detail

/// A buffer of a DeviceArena that is in use. Move-only; a moved-from slot is empty. It may outlive
/// its arena.
class DeviceSlot {
 public:
  DeviceSlot() = default;
  DeviceSlot(DeviceSlot&&) noexcept = default;
  DeviceSlot& operator=(DeviceSlot&& other) noexcept {
    DeviceSlot taken(std::move(other));
    std::swap(core_, taken.core_);
    std::swap(index_, taken.index_);
    return *this;
  }
  /// Like release_after(writer), where `writer` is the stream that acquired the slot. While that
  /// stream is being captured, the arena keeps the slot; the first acquire or release after the
  /// capture frees it.
  ~DeviceSlot() { release(); }

  /// Whether this is a slot: false after a move or a release.
  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// Device memory, 512-byte aligned. A slot with the same index has the same address.
  std::byte* data() const noexcept;
  /// 0 ... slots - 1.
  std::size_t index() const noexcept { return index_; }

  /// Releases the slot: the stream of its next writer waits for the work that `reader` holds now;
  /// the host does not wait. The slot is empty afterwards. If the event cannot be recorded, the
  /// host waits for the stream instead; if that fails too, the slot is never used again. Both throw
  /// CudaError.
  ///
  /// Throws std::invalid_argument for a stream of another device, std::logic_error for one that is
  /// being captured: the slot is not released then.
  [[gnu::always_inline]] void release_after(StreamRef reader) {
    const cudaStream_t stream = reader;
    release_after(std::span(&stream, 1));
  }
  /// The same for the streams of several readers; if there are none, like release_after(writer).
  [[gnu::always_inline]] void release_after(std::span<const cudaStream_t> streams) {
    release_after(streams, detail::named(nullptr));
  }

 private:
  friend class DeviceArena;
  friend class DeviceArenaResource;
  friend class detail::Pipeline;
  DeviceSlot(std::shared_ptr<detail::DeviceArenaCore> core, std::size_t index)
      : core_(std::move(core)), index_(index) {}
  /// `zero`: what stream 0 is.
  void release_after(std::span<const cudaStream_t> streams, cudaStream_t zero);
  /// False: a stream is being captured, and the slot is not released. With `park` the arena takes
  /// it.
  bool try_release_after(std::span<const detail::ResolvedStream> streams, bool park);
  bool try_release(bool park);
  void release() noexcept;

  std::shared_ptr<detail::DeviceArenaCore> core_;
  std::size_t index_ = 0;
};

/// A fixed set of device buffers, reused in stream order. Any thread may call any member. After
/// construction (and the first release of a slot with a larger number of streams) nothing allocates
/// or blocks inside CUDA.
class DeviceArena {
 public:
  /// `slots` buffers of `slot_bytes` in one allocation on the current device, of cudaMalloc or an
  /// upstream. That gets it back with the last slot, on this device; but not if a slot is lost or
  /// parked then. `timeout` limits the wait of `acquire`; milliseconds::max(): no limit. The time
  /// in which the process is stopped (SIGSTOP, a suspended machine) does not count. Throws
  /// CudaError; MemoryError if an upstream fails; std::invalid_argument for 0 slots or bytes, and
  /// for a negative time-out.
  DeviceArena(std::size_t slots, std::size_t slot_bytes, const Upstream& upstream = {},
              std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// The slot that has been free for longest. Work that is queued on `writer` from now on waits for
  /// the slot's last readers. Blocks this thread only while every slot is in use, until some thread
  /// releases one. Throws PoolExhausted after the time-out, as where this thread itself holds every
  /// slot: release one before, make more slots, or call try_acquire. Throws std::invalid_argument
  /// for a stream of another device; std::logic_error for one that is being captured, and if every
  /// slot waits for the end of a capture.
  [[gnu::always_inline]] DeviceSlot acquire(StreamRef writer) {
    return acquire_named(detail::named(writer));
  }
  /// The same; nullopt if acquire would block.
  [[gnu::always_inline]] std::optional<DeviceSlot> try_acquire(StreamRef writer) {
    return try_acquire_named(detail::named(writer));
  }

  /// Number of slots.
  std::size_t slots() const noexcept;
  /// Size of a slot in bytes.
  std::size_t slot_bytes() const noexcept;
  /// The device that has the memory.
  int device() const noexcept;
  /// Slots that can be acquired now.
  std::size_t free_slots() const;
  /// Slots that are never used again after a failure of CUDA (see DeviceSlot::release_after).
  std::size_t lost_slots() const;
  /// Slots that were destroyed while their stream was being captured, and wait for the capture's
  /// end.
  std::size_t parked_slots() const;
  /// Throws the last CudaError if every slot is lost; std::logic_error if every other slot waits
  /// for the end of a capture.
  void require_slot() const;

 private:
  friend class detail::DeviceStage;
  friend class detail::DeviceTargets;
  friend class DeviceArenaResource;
  DeviceSlot acquire_named(cudaStream_t writer);
  std::optional<DeviceSlot> try_acquire_named(cudaStream_t writer);
  /// Empty: there is none now.
  DeviceSlot try_acquire(const detail::ResolvedStream& writer);
  /// Empty: stop was requested.
  DeviceSlot acquire(const detail::ResolvedStream& writer, const std::stop_token& stop);

  std::shared_ptr<detail::DeviceArenaCore> core_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/device_arena.hpp>
#endif
