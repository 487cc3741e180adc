// SPDX-License-Identifier: Apache-2.0
#pragma once

// An event: the last place in a stream at which it was recorded, and when that place was reached.
// Used under the runtime's lock.

#include <cstdint>
#include <vector>

#include "task.hpp"

namespace penstock::emulation::detail {

struct GraphNode;

class Event : public Counted {
 public:
  Event(int device, unsigned flags) : device_(device), flags_(flags) {}

  std::uint64_t handle = 0;
  int device() const { return device_; }
  bool timed() const { return (flags_ & cudaEventDisableTiming) == 0; }

  // ---- Recorded in a stream
  /// The last record; a Mark without a stream, which is reached, when there was none.
  const Mark& last() const { return last_; }
  bool recorded() const { return static_cast<bool>(last_.stream); }
  /// Starts a new record: its number, for `reach`.
  std::uint64_t begin_record() { return ++records_; }
  /// The record of now is this place.
  void record(Mark mark) {
    last_ = std::move(mark);
    unready_queries_ = 0;
    capture_ = 0;
    captured_.clear();
  }
  /// The stream has come to record number `record`.
  void reach(std::uint64_t record, Time time) {
    if (record == records_) time_ = time;
  }
  Time time() const { return time_; }
  unsigned count_unready_query() { return ++unready_queries_; }

  // ---- Recorded in a capture, by the capture's number
  std::uint64_t capture() const { return capture_; }
  const std::vector<GraphNode*>& captured() const { return captured_; }
  void record_captured(std::uint64_t capture, std::vector<GraphNode*> nodes) {
    capture_ = capture;
    captured_ = std::move(nodes);
  }

 private:
  int device_;
  unsigned flags_;
  Mark last_;
  std::uint64_t records_ = 0;
  Time time_{};
  unsigned unready_queries_ = 0;
  std::uint64_t capture_ = 0;  // 0: not recorded in a capture
  std::vector<GraphNode*> captured_;
};

}  // namespace penstock::emulation::detail
