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
// Streams may be of any kind: created, the legacy default stream, a thread's own. A default stream
// is that of the device that is current when it is passed, and cudaStreamPerThread that of the
// thread that passes it, whoever releases the slot later.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/inline.hpp>
#include <span>
#include <stop_token>
#include <utility>

namespace penstock {

namespace detail {
class DeviceArenaCore;
class DeviceStage;
class DeviceTargets;
class HandOver;
struct ResolvedStream;
}  // namespace detail

/// One buffer of a DeviceArena, held: move-only; a moved-from slot is empty. May outlive its arena.
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
  /// As release_after(writer): what the acquiring stream holds now comes before the next writer.
  /// While that stream is being captured, the arena keeps the slot; it is given back by the first
  /// acquire or release after the capture.
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
  ///
  /// The slot stays as it is, held, where it cannot be released so: std::invalid_argument for a
  /// stream of another device, std::logic_error for one that is being captured.
  [[gnu::always_inline]] void release_after(cudaStream_t stream) {
    release_after(std::span(&stream, 1));
  }
  /// The same for several streams of readers; for none, as release_after(writer).
  [[gnu::always_inline]] void release_after(std::span<const cudaStream_t> streams) {
    release_after(streams, detail::named(nullptr));
  }

 private:
  friend class DeviceArena;
  friend class detail::HandOver;
  DeviceSlot(std::shared_ptr<detail::DeviceArenaCore> core, std::size_t index)
      : core_(std::move(core)), index_(index) {}
  /// `zero`: what stream 0 is.
  void release_after(std::span<const cudaStream_t> streams, cudaStream_t zero);
  /// False: a stream is being captured, and the slot stays held. With `park` the arena keeps it.
  bool try_release_after(std::span<const detail::ResolvedStream> streams, bool park);
  bool try_release(bool park);
  void release() noexcept;

  std::shared_ptr<detail::DeviceArenaCore> core_;
  std::size_t index_ = 0;
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
  /// somebody. Throws std::invalid_argument for a stream of another device; std::logic_error for
  /// one that is being captured, and where every slot waits for the end of a capture.
  [[gnu::always_inline]] DeviceSlot acquire(cudaStream_t writer) {
    return acquire_named(detail::named(writer));
  }
  /// The same; empty where acquire would block.
  [[gnu::always_inline]] std::optional<DeviceSlot> try_acquire(cudaStream_t writer) {
    return try_acquire_named(detail::named(writer));
  }

  std::size_t slots() const noexcept;
  std::size_t slot_bytes() const noexcept;
  int device() const noexcept;
  /// Slots that can be acquired now.
  std::size_t free_slots() const;
  /// Slots given up because CUDA could not say when they are free (see DeviceSlot::release_after).
  std::size_t lost_slots() const;
  /// Slots that were dropped while their stream was being captured, and have to wait for its end.
  std::size_t parked_slots() const;
  /// Throws the CudaError that took the last slot, once every slot is lost; std::logic_error once
  /// every slot that is not waits for the end of a capture.
  void require_slot() const;

 private:
  friend class detail::DeviceStage;
  friend class detail::DeviceTargets;
  DeviceSlot acquire_named(cudaStream_t writer);
  std::optional<DeviceSlot> try_acquire_named(cudaStream_t writer);
  std::optional<DeviceSlot> try_acquire(const detail::ResolvedStream& writer);
  /// Empty: stop was requested.
  std::optional<DeviceSlot> acquire(const detail::ResolvedStream& writer,
                                    const std::stop_token& stop);

  std::shared_ptr<detail::DeviceArenaCore> core_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/device_arena.hpp>
#endif
