// SPDX-License-Identifier: Apache-2.0
#pragma once

// An event: the last place in a stream at which it was recorded, and when that place was reached.
// Use it with the runtime's lock held.

#include <cstdint>
#include <memory>
#include <penstock/version.hpp>
#include <utility>
#include <vector>

#include "shared_event.hpp"
#include "stream.hpp"
#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

struct GraphNode;

class Event : public Counted {
 public:
  Event(int device, unsigned flags) : device_(device), flags_(flags) {}

  std::uint64_t handle = 0;
  int device() const { return device_; }
  bool timed() const { return (flags_ & cudaEventDisableTiming) == 0; }
  bool interprocess() const { return (flags_ & cudaEventInterprocess) != 0; }

  // ---- Shared with other processes, which may record it too
  /// Null if only this process has the event.
  SharedEvent* shared() const { return shared_.get(); }
  /// Whether another process created it.
  bool opened() const { return shared_ != nullptr && !interprocess(); }
  /// Makes the event available to other processes. Returns false if the system refuses.
  bool share() {
    const bool reached = last_.reached();
    if (!shared_)
      shared_ = SharedEvent::make(device_, records_, recorded() && reached ? &time_ : nullptr);
    return shared_ != nullptr;
  }
  /// Makes this the event of another process.
  void become(std::unique_ptr<SharedEvent> shared) { shared_ = std::move(shared); }
  /// Whether the process that created the event has destroyed it.
  bool gone() const { return shared_ && shared_->destroyed(); }
  /// The number of the last record if another process made that record; otherwise 0.
  std::uint64_t last_elsewhere() const {
    const std::uint64_t last = shared_ ? shared_->last() : records_;
    return last == records_ ? 0 : last;
  }

  // ---- Recorded in a stream
  /// The last record of this process. If there was none, a Mark without a stream, which counts as
  /// reached.
  const Mark& last() const { return last_; }
  bool recorded() const { return static_cast<bool>(last_.stream) || last_elsewhere() != 0; }
  /// Makes the task wait for the last record.
  void hold(Task& task) {
    if (const std::uint64_t record = last_elsewhere(); record != 0) {
      task.work = WaitWork{record};
      task.event = Ref<Event>(this);
    } else {
      task.after.push_back(last_);
    }
  }
  /// Whether no record can begin because too many records of a shared event are under way.
  bool full() const { return shared_ && shared_->full(); }
  /// Starts a new record. Returns its number, for `reach`; 0 if the event is full.
  std::uint64_t begin_record() {
    const std::uint64_t record = shared_ ? shared_->begin() : records_ + 1;
    if (record != 0) records_ = record;
    return record;
  }
  /// Sets the place of the present record.
  void record(Mark mark) {
    last_ = std::move(mark);
    unready_queries_ = 0;
    capture_ = 0;
    captured_.clear();
  }
  /// Call it when the stream has reached record number `record`.
  void reach(std::uint64_t record, Time time, bool failed) {
    if (record == records_) time_ = time;
    if (shared_) shared_->finish(record, failed, time);
  }
  Time time() const { return time_; }
  unsigned count_unready_query() { return ++unready_queries_; }

  // ---- Recorded in a capture, which is identified by its number
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
  std::unique_ptr<SharedEvent> shared_;
};

}  // namespace penstock::emulation::detail
