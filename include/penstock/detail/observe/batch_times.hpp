// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchTimes: when a batch passed each step of its route, and how long the source took for it.
// Each stamp is written once, by the thread that has the batch at that step.

#include <cstdint>
#include <penstock/detail/observe/ticks.hpp>

namespace penstock::detail {

struct alignas(64) BatchTimes {
  Ticks wanted = 0;  ///< its worker had handed on the batch before, and wanted memory for this one
  Ticks opened = 0;  ///< it had memory, and then its number
  Ticks filled = 0;  ///< its last row was filled: it was ready for its copy
  Ticks staged =
      0;  ///< its copy (and transform) was queued; on_device: its slot was written or will be
  Ticks asked = 0;     ///< the call of next() that got it had begun
  Ticks taken = 0;     ///< that call had ended
  Ticks released = 0;  ///< its lease had ended on the host
  /// Nanoseconds inside the source, of all workers together, and flags: see the members below.
  std::uint64_t work = 0;

  static constexpr int kWorkBits = 48;
  static constexpr std::uint64_t kWorkMask = (std::uint64_t{1} << kWorkBits) - 1;
  static constexpr std::uint64_t kFirstOfWorker = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kSecondStream = std::uint64_t{1} << 49;
  static constexpr int kStreamShift = 50;  ///< 14 bits: which of the streams that take in turn

  /// Time inside the source, of all workers together.
  Ticks source_time() const noexcept { return static_cast<Ticks>(work & kWorkMask); }
  /// A worker filled its first batch, or a piece of it, here: it may include what is done once.
  bool first_of_worker() const noexcept { return (work & kFirstOfWorker) != 0; }
  /// Its lease was also used on a second stream.
  bool second_stream() const noexcept { return (work & kSecondStream) != 0; }
  /// A number for the stream that took it, in the order of their first batches.
  int stream() const noexcept { return static_cast<int>(work >> kStreamShift); }
};
static_assert(sizeof(BatchTimes) == 64, "one cache line");

/// What one batch took on the device, in nanoseconds, measured by timed events. -1: not measured.
struct DeviceDurations {
  std::int64_t source = -1;     ///< on_device: from when the slot may be written until it was
  std::int64_t slot = -1;       ///< the copy stream waited for a slot and its readers
  std::int64_t copy = -1;       ///< the copy to the device
  std::int64_t transform = -1;  ///< the DeviceTransform behind it
  std::int64_t wait = -1;       ///< the consumer's stream had no work until the batch was there
  /// The consumer's stream, from when the batch was there until it reached the next request: its
  /// work, and its waits for the host.
  std::int64_t step = -1;
};

/// A batch whose lease has ended.
struct FinishedBatch {
  std::uint64_t number = 0;  ///< over all epochs
  BatchTimes times;
  DeviceDurations device;
};

}  // namespace penstock::detail
