// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which host functions ran, in which order:
//
//   HostLog log;
//   log.enqueue(stream, 1);                       // a host function that notes 1 when it runs
//   log.enqueue(other_stream, 2);
//   CHECK(log.entries() == std::vector{1, 2});

#include <deque>
#include <mutex>
#include <vector>

#include "catch.hpp"

namespace penstock::test {

/// Must outlive the work that it queued, replays of a captured graph included.
class HostLog {
 public:
  HostLog() = default;
  HostLog(const HostLog&) = delete;
  HostLog& operator=(const HostLog&) = delete;

  /// Queues a host function on `stream` that adds `number` to the entries. Does not block.
  void enqueue(cudaStream_t stream, int number) {
    REQUIRE_CUDA(cudaLaunchHostFunc(stream, &HostLog::append, note(number)));
  }
  /// What enqueue passes to append(), for graph nodes that are made by hand.
  void* note(int number) {
    const std::lock_guard lock(mutex_);
    return &notes_.emplace_back(Note{this, number});
  }
  static void CUDART_CB append(void* data) {
    const auto& note = *static_cast<const Note*>(data);
    const std::lock_guard lock(note.log->mutex_);
    note.log->entries_.push_back(note.number);
  }
  std::vector<int> entries() const {
    const std::lock_guard lock(mutex_);
    return entries_;
  }

 private:
  struct Note {
    HostLog* log;
    int number;
  };
  mutable std::mutex mutex_;
  std::deque<Note> notes_;  // a deque: addresses stay
  std::vector<int> entries_;
};

}  // namespace penstock::test
