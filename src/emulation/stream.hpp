// SPDX-License-Identifier: Apache-2.0
#pragma once

// A stream: a queue of tasks that run one after the other, on a thread of the stream's own. The
// scheduler moves it; this is its state, used under the runtime's lock.

#include <driver_types.h>

#include <condition_variable>
#include <cstdint>
#include <string>
#include <vector>

#include "task.hpp"

namespace penstock::emulation::detail {

struct Capture;
struct Device;
struct GraphNode;

inline constexpr int kLeastUrgent = 0, kMostUrgent = -5;  // priorities

/// A host thread that waits for a place in a stream; lives on that thread's stack.
struct HostWait {
  std::uint64_t sequence;
  std::condition_variable* wake;
};

/// A stream whose next task waits for a place in this one.
struct Watcher {
  Stream* stream;
  std::uint64_t sequence;
};

enum class StreamKind {
  legacy,   ///< the legacy default stream of a device
  created,  ///< by the program, or the default stream of a thread
  branch,   ///< of a graph: never waits for the default stream by itself
};

struct Stream : Counted {
  Stream(StreamKind made_as, Device& owner, std::uint64_t id, unsigned create_flags, int urgency)
      : kind(made_as), device(owner), number(id), flags(create_flags), priority(urgency) {}
  ~Stream() override;

  const StreamKind kind;
  Device& device;
  std::uint64_t number;  ///< in order of creation; 0: the legacy one; of a branch: of its launch
  unsigned flags;
  int priority;  ///< lower is more urgent
  cudaStream_t handle = nullptr;

  bool legacy() const { return kind == StreamKind::legacy; }
  /// Waits for the legacy default stream, and that one for it.
  bool blocking() const {
    return kind == StreamKind::created && (flags & cudaStreamNonBlocking) == 0;
  }

  // The queue.
  Task* head = nullptr;
  Task* tail = nullptr;
  std::uint64_t submitted = 0;  ///< tasks so far
  std::uint64_t completed = 0;
  std::uint64_t demanded = 0;  ///< lazy schedule: how far somebody needs it to get
  bool closed = false;         ///< no handle any more: goes away when the queue is empty
  Time last_end{};             ///< when the last completed task ended, in the machine's own time
  TaskEdgesPtr last_edges;     ///< of the last submitted task
  unsigned unready_queries = 0;
  std::uint64_t launches = 0;  ///< tasks in the queue that count for kQueueLength
  Time look_again{};           ///< when its thread has another look at the first task

  bool drained() const { return head == nullptr; }
  /// The end of everything that is in the stream now.
  Mark end() { return {Ref<Stream>(this), submitted, last_edges}; }

  // Who moves it.
  bool running = false;  ///< a thread executes the first task
  bool has_thread = false;
  bool runnable = false;         ///< is in the scheduler's list of what any thread may run
  int engine = -1;               ///< the copy engine that the first task holds
  std::condition_variable wake;  ///< of the stream's thread

  // Who waits for it.
  std::vector<HostWait> host_waits;
  std::vector<Watcher> watchers;
  bool watching = false;  ///< is a watcher of some stream itself

  // Order with the legacy default stream: how far each side waits for the other already.
  std::uint64_t legacy_awaited = 0;
  std::uint64_t awaited_by_legacy = 0;

  // Stream capture.
  Capture* capture = nullptr;
  std::vector<GraphNode*> capture_tail;  ///< what the next captured node comes after
};

/// "stream 3 of device 0", for messages.
std::string describe(const Stream& stream);

inline bool Mark::reached() const {
  return !stream || stream->completed >= sequence;
}

}  // namespace penstock::emulation::detail
