// SPDX-License-Identifier: Apache-2.0
#pragma once

// Landing: where a host batch is copied to, and what turns the copy into the batch in the slot: a
// DeviceTransform in the copy stream, or nothing at all.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/batch_object.hpp>
#include <penstock/detail/pipeline/staged_line.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/device_transform.hpp>
#include <penstock/layout.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace penstock::detail {

/// Of the thread that pumps.
class Landing {
 public:
  using Transform = std::optional<ErasedTransform>;

  /// Allocates, on the current device, what batches pass through on their way to a transform.
  Landing(const BlockLayout& layout, Transform transform, cudaStream_t copy_stream)
      : layout_(layout),
        transform_(std::move(transform)),
        copied_(layout),
        device_(current_device()) {
    if (!transform_) return;
    if (transform_->layout.batch_size() < layout_.batch_size())
      throw std::invalid_argument(
          "DeviceTransform: its layout holds " + std::to_string(transform_->layout.batch_size()) +
          " samples, and the batches have " + std::to_string(layout_.batch_size()));
    transform_->layout.require_fields();
    passage_ = DeviceArena(1, at_least_one(layout_.bytes())).acquire(copy_stream);
  }

  /// Of what the slots hold.
  const BlockLayout& slot_layout() const { return transform_ ? transform_->layout : layout_; }
  std::size_t slot_bytes() const { return at_least_one(slot_layout().bytes()); }
  /// Device memory that is not a slot's.
  std::size_t passage_bytes() const { return transform_ ? at_least_one(layout_.bytes()) : 0; }

  std::byte* target(const Staged& staged) const {
    return transform_ ? passage_.data() : staged.memory.data();
  }

  /// Takes over `host`, a batch that lies in the block which the copy releases.
  void take_over(const void* host, Staged& staged) const {
    std::memcpy(copied(staged), host, layout_.batch_bytes());
  }
  /// Makes the batch in `staged` of the one that was taken over, whose bytes are queued to be
  /// copied to target().
  void land(std::int64_t samples, Staged& staged, cudaStream_t copy_stream) const {
    layout_.rebind(copied(staged), target(staged), samples);
    if (!transform_) return;
    const DeviceGuard guard(device_);
    const BlockLayout& layout = transform_->layout;
    layout.bind(staged.object.get(), staged.memory.data(), samples);
    transform_->apply(staged.ticket, copied(staged), staged.object.get(), copy_stream);
    layout.samples(staged.object.get(), staged.memory.data());  // Nobody moved its tensors.
  }

 private:
  void* copied(const Staged& staged) const {
    return transform_ ? copied_.get() : staged.object.get();
  }
  static std::size_t at_least_one(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

  const BlockLayout layout_;
  const Transform transform_;
  const BatchObject copied_;  // what a transform reads: the host's batch, its tensors on the device
  int device_;
  DeviceSlot passage_;  // The copy stream alone uses it, one batch after the other.
};

}  // namespace penstock::detail
