// SPDX-License-Identifier: Apache-2.0
#pragma once

// TransformStage: where a host batch is copied to, and what makes the batch in the slot of the
// copy: a DeviceTransform in the copy stream, or nothing at all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/batch_object.hpp>
#include <penstock/detail/pipeline/staged_queue.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/device_transform.hpp>
#include <penstock/error.hpp>
#include <penstock/layout.hpp>
#include <penstock/upstream.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace penstock::detail {

/// Only the thread that stages uses it.
class TransformStage {
 public:
  using Transform = std::optional<ErasedTransform>;

  /// Allocates, on the current device, what batches pass through on their way to a transform.
  TransformStage(const BlockLayout& layout, Transform transform, cudaStream_t copy_stream,
                 Upstream upstream)
      : layout_(layout),
        transform_(std::move(transform)),
        upstream_(std::move(upstream)),
        copied_(layout),
        device_(current_device()) {
    if (!transform_) return;
    if (transform_->layout.batch_size() < layout_.batch_size())
      throw std::invalid_argument(
          "DeviceTransform: its layout holds " + std::to_string(transform_->layout.batch_size()) +
          " samples, and the batches have " + std::to_string(layout_.batch_size()));
    transform_->layout.require_fields();
    transform_input_ = allocate(1, at_least_one(layout_.bytes()), "for the DeviceTransform's input")
                           .acquire(copy_stream);
  }

  bool transforms() const { return transform_.has_value(); }
  /// Memory comes from there.
  bool has_upstream() const { return static_cast<bool>(upstream_); }
  /// Of what the slots hold.
  const BlockLayout& slot_layout() const { return transform_ ? transform_->layout : layout_; }
  std::size_t slot_bytes() const { return at_least_one(slot_layout().bytes()); }
  /// Device memory that is not a slot's.
  std::size_t passage_bytes() const { return transform_ ? at_least_one(layout_.bytes()) : 0; }

  /// Memory for so many batches. An error for want of memory says what to change.
  DeviceArena make_slots(std::size_t device_depth) const {
    return allocate(device_depth, slot_bytes(), "of device_depth");
  }

  std::byte* target(const Staged& staged) const {
    return transform_ ? transform_input_.data() : staged.memory.data();
  }

  /// Takes over `host`, a batch that lies in the block which the copy releases.
  void take_over(const void* host, Staged& staged) const {
    std::memcpy(copied(staged), host, layout_.batch_bytes());
  }
  /// Makes the batch in `staged` of the one that was taken over, whose bytes are queued to be
  /// copied to target().
  void apply(std::int64_t samples, Staged& staged, cudaStream_t copy_stream) const {
    layout_.rebind(copied(staged), target(staged), samples);
    staged.rows = samples;
    if (!transform_) return;
    const DeviceGuard guard(device_);
    const cudaError_t before = cudaPeekAtLastError();
    try {
      transform_->layout.bind(staged.object.get(), staged.memory.data(), samples);
      transform_->apply(staged.ticket, copied(staged), staged.object.get(), copy_stream);
      check(new_error(before), "what the DeviceTransform launched without a check of its own");
      // Throws where somebody moved its tensors.
      staged.rows = transform_->layout.samples(staged.object.get(), staged.memory.data());
    } catch (...) {
      if (new_error(before) != cudaSuccess) cudaGetLastError();  // Reported here.
      throw SourceError(staged.ticket.epoch, staged.ticket.batch, what_is_handled(),
                        "the DeviceTransform");
    }
  }

 private:
  /// This thread's last error, unless it was there `before`: then it is the user's, whose own check
  /// has yet to see it. (It hides a new one of the same code, which that check finds as well.)
  static cudaError_t new_error(cudaError_t before) noexcept {
    const cudaError_t now = cudaPeekAtLastError();
    return now == before ? cudaSuccess : now;
  }

  DeviceArena allocate(std::size_t slots, std::size_t bytes, const char* which) const {
    try {
      return DeviceArena(slots, bytes, upstream_);
    } catch (const CudaError& error) {
      std::size_t free = 0, total = 0;
      if (error.code() != cudaErrorMemoryAllocation || cudaMemGetInfo(&free, &total) != cudaSuccess)
        throw;
      throw CudaError(error.code(),
                      "no device memory for " + std::to_string(slots) + " slots (" + which +
                          ") of " + std::to_string(bytes) + " bytes, for batches of " +
                          std::to_string(layout_.batch_size()) + " samples, with " +
                          std::to_string(free) + " of " + std::to_string(total) +
                          " bytes free: lower device_depth or the batch size. " + error.what());
    }
  }

  void* copied(const Staged& staged) const {
    return transform_ ? copied_.get() : staged.object.get();
  }
  static std::size_t at_least_one(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

  const BlockLayout layout_;
  const Transform transform_;
  const Upstream upstream_;
  const BatchObject copied_;  // what a transform reads: the host's batch, its tensors on the device
  int device_;
  DeviceSlot transform_input_;  // The copy stream alone uses it, one batch after the other.
};

}  // namespace penstock::detail
