// SPDX-License-Identifier: Apache-2.0
#pragma once

// Landing: where a host batch is copied to, and what turns the copy into the batch in the slot: a
// DeviceTransform in the copy stream, or nothing at all.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <penstock/batch_producer.hpp>
#include <penstock/cuda.hpp>
#include <penstock/detail/pipeline/staged_line.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/device_transform.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace penstock::detail {

/// Of the thread that pumps.
template <class Batch, class Host>
class Landing {
 public:
  using Transform = std::optional<DeviceTransform<Host, Batch>>;

  /// Allocates, on the current device, what batches pass through on their way to a transform.
  Landing(Layout<Host> layout, Transform transform, cudaStream_t copy_stream)
      : layout_(std::move(layout)), transform_(std::move(transform)), device_(current_device()) {
    if (!transform_) return;
    if (transform_->layout().batch_size() < layout_.batch_size())
      throw std::invalid_argument(
          "DeviceTransform: its layout holds " + std::to_string(transform_->layout().batch_size()) +
          " samples, and the batches have " + std::to_string(layout_.batch_size()));
    passage_ = DeviceArena(1, at_least_one(layout_.bytes())).acquire(copy_stream);
  }

  std::size_t slot_bytes() const {
    return at_least_one(transform_ ? transform_->layout().bytes() : layout_.bytes());
  }
  /// Device memory that is not a slot's.
  std::size_t passage_bytes() const { return transform_ ? at_least_one(layout_.bytes()) : 0; }

  std::byte* target(const Staged<Batch>& staged) const {
    return transform_ ? passage_.data() : staged.slot.data();
  }

  /// Makes the batch in `staged.slot` of `host`, whose bytes are queued to be copied to target().
  void land(Host host, std::int64_t samples, Staged<Batch>& staged,
            cudaStream_t copy_stream) const {
    layout_.rebind(host, target(staged), samples);
    if (transform_) {
      const DeviceGuard guard(device_);
      staged.batch = transform_->layout().bind(staged.slot.data(), samples);
      (*transform_)(staged.ticket, host, staged.batch, copy_stream);
      transform_->layout().samples(staged.batch, staged.slot.data());  // Nobody moved its tensors.
    } else if constexpr (std::is_same_v<Batch, Host>) {
      staged.batch = host;
    }
  }

 private:
  static std::size_t at_least_one(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

  Layout<Host> layout_;
  Transform transform_;
  int device_;
  DeviceSlot passage_;  // The copy stream alone uses it, one batch after the other.
};

}  // namespace penstock::detail
