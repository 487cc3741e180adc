// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchTimes: when a batch passed each stage of the pipeline, and how long the source took for it.
// Each stamp is written once, by the thread that has the batch in that stage.

#include <cstdint>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

struct alignas(64) BatchTimes {
  Ticks wanted = 0;  ///< its worker began to wait for memory, after it had handed on its previous
                     ///< batch
  Ticks opened = 0;  ///< it had memory and a number
  Ticks filled = 0;  ///< its last row was filled, and it was ready to be copied
  Ticks staged = 0;  ///< its copy (and transform) was queued; on_device: the write of its slot was
                     ///< queued or done
  Ticks asked = 0;   ///< the call of next() that returned it began
  Ticks taken = 0;   ///< that call ended
  Ticks released = 0;  ///< its lease ended on the host
  /// The nanoseconds that all workers together spent in the source, and flags: see the members
  /// below.
  std::uint64_t work = 0;

  static constexpr int kWorkBits = 48;
  static constexpr std::uint64_t kWorkMask = (std::uint64_t{1} << kWorkBits) - 1;
  static constexpr std::uint64_t kFirstOfWorker = std::uint64_t{1} << 48;
  static constexpr std::uint64_t kSecondStream = std::uint64_t{1} << 49;
  static constexpr int kStreamShift = 50;  ///< 14 bits: the number of the consumer's stream

  /// The time that all workers together spent in the source.
  Ticks source_time() const noexcept { return static_cast<Ticks>(work & kWorkMask); }
  /// True: this batch, or a part of it, was the first of a worker. Its time may include work that
  /// is done only once.
  bool first_of_worker() const noexcept { return (work & kFirstOfWorker) != 0; }
  /// True: its lease was also used on a second stream.
  bool second_stream() const noexcept { return (work & kSecondStream) != 0; }
  /// The number of the stream that took it. Streams are numbered in the order of their first
  /// batches.
  int stream() const noexcept { return static_cast<int>(work >> kStreamShift); }
};
static_assert(sizeof(BatchTimes) == 64, "one cache line");

/// The times of one batch on the device, in nanoseconds, measured by timed events. -1: not
/// measured.
struct DeviceDurations {
  std::int64_t source = -1;     ///< on_device: from when the slot may be written until it is
                                ///< written
  std::int64_t slot = -1;       ///< the copy stream waited for a slot and its readers
  std::int64_t copy = -1;       ///< the copy to the device
  std::int64_t transform = -1;  ///< the DeviceTransform after it
  std::int64_t wait = -1;       ///< the consumer's stream had no work until the batch arrived
  /// The time of the consumer's stream from the arrival of the batch to the next call of next() on
  /// that stream: its work, and its waits for the host.
  std::int64_t step = -1;
};

/// A batch whose lease has ended.
struct FinishedBatch {
  std::uint64_t number = 0;  ///< counted over all epochs
  BatchTimes times;
  DeviceDurations device;
};

}  // namespace penstock::detail
