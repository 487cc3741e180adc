// SPDX-License-Identifier: Apache-2.0
#pragma once

// TransformStage: makes the batch in the slot of the copied host batch: by a DeviceTransform in the
// copy stream, or, without one, by the copy itself.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/pipeline/batch_record.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/device_transform.hpp>
#include <penstock/error.hpp>
#include <penstock/layout.hpp>
#include <penstock/upstream.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Only the thread that stages uses it.
class TransformStage {
 public:
  using Transform = std::optional<ErasedTransform>;

  /// Allocates the input of the transform, on the current device.
  TransformStage(const BlockLayout& layout, Transform transform, cudaStream_t copy_stream,
                 Upstream upstream)
      : layout_(layout),
        transform_(std::move(transform)),
        upstream_(std::move(upstream)),
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
  /// The bytes of the transform's input, which is no slot.
  std::size_t passage_bytes() const { return transform_ ? at_least_one(layout_.bytes()) : 0; }

  /// Allocates the slots. An error for want of memory says what to change.
  DeviceArena make_slots(std::size_t device_depth) const {
    return allocate(device_depth, slot_bytes(), "of device_depth");
  }

  /// Returns where the bytes of the host's batch are copied to.
  std::byte* target(const BatchRecord& record) const {
    return transform_ ? transform_input_.data() : record.memory.slot.data();
  }
  /// Makes the batch on the device. The copy of the host's bytes to target() is queued before.
  void apply(BatchRecord& record, cudaStream_t copy_stream) const {
    layout_.rebind(record.object.get(), target(record), record.rows);
    if (!transform_) return;
    const DeviceGuard guard(device_);
    const cudaError_t before = cudaPeekAtLastError();
    void* const output = record.output->get();
    try {
      transform_->layout.bind(output, record.memory.slot.data(), record.rows);
      transform_->apply(record.ticket, record.object.get(), output, copy_stream);
      check(new_error(before), "what the DeviceTransform launched without a check of its own");
      // Throws where somebody moved its tensors.
      record.rows = transform_->layout.samples(output, record.memory.slot.data());
    } catch (...) {
      if (new_error(before) != cudaSuccess) cudaGetLastError();  // Reported here.
      throw SourceError(record.ticket.epoch, record.ticket.batch, what_is_handled(),
                        "the DeviceTransform");
    }
    record.batch = output;
  }

 private:
  /// Returns this thread's last error, unless it was there `before`. Then it is the user's, whose
  /// own check has not seen it yet. (It hides a new error with the same code, which that check
  /// finds as well.)
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

  static std::size_t at_least_one(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

  const BlockLayout layout_;
  const Transform transform_;
  const Upstream upstream_;
  int device_;
  DeviceSlot transform_input_;  // The copy stream alone uses it, one batch after the other.
};

}  // namespace penstock::detail
