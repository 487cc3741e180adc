// SPDX-License-Identifier: Apache-2.0
#pragma once

// A stream: a queue of tasks that run in order, on a thread of the stream. The scheduler moves it.
// This is its state; use it with the runtime's lock held.

#include <driver_types.h>

#include <condition_variable>
#include <cstdint>
#include <penstock/version.hpp>
#include <string>
#include <vector>

#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

struct Capture;
struct Device;
struct GraphNode;

inline constexpr int kLeastUrgent = 0, kMostUrgent = -5;  // priorities

/// A host thread that waits for a place in a stream. The object is on that thread's stack.
struct HostWait {
  std::uint64_t sequence;
  std::condition_variable* wake;
};

/// A stream whose next task waits for a place in this stream.
struct Watcher {
  Stream* stream;
  std::uint64_t sequence;
};

enum class StreamKind {
  legacy,   ///< the legacy default stream of a device
  created,  ///< created by the program, or the default stream of a thread
  branch,   ///< a branch of a graph: it never waits for the default stream by itself
};

struct Stream : Counted {
  Stream(StreamKind made_as, Device& owner, std::uint64_t id, unsigned create_flags, int urgency)
      : kind(made_as), device(owner), number(id), flags(create_flags), priority(urgency) {}
  ~Stream() override;

  const StreamKind kind;
  Device& device;
  std::uint64_t number;  ///< in order of creation; 0: the legacy stream; for a branch: the number
                         ///< of its launch
  unsigned flags;
  int priority;  ///< lower is more urgent
  cudaStream_t handle = nullptr;

  bool legacy() const { return kind == StreamKind::legacy; }
  /// Whether this stream and the legacy default stream wait for each other.
  bool blocking() const {
    return kind == StreamKind::created && (flags & cudaStreamNonBlocking) == 0;
  }

  // The queue.
  Task* head = nullptr;
  Task* tail = nullptr;
  std::uint64_t submitted = 0;  ///< number of tasks so far
  std::uint64_t completed = 0;
  std::uint64_t demanded = 0;  ///< lazy schedule: the task up to which the stream is needed
  bool closed = false;      ///< it has no handle any more, and is removed when the queue is empty
  Time last_end{};          ///< when the last completed task ended, by the emulated machine's clock
  TaskEdgesPtr last_edges;  ///< edges of the last submitted task
  unsigned unready_queries = 0;
  std::uint64_t launches = 0;  ///< tasks in the queue that count towards kQueueLength
  Time look_again{};           ///< when its thread checks the first task again

  bool drained() const { return head == nullptr; }
  /// The end of all work that the stream holds now.
  Mark end() { return {Ref<Stream>(this), submitted, last_edges}; }

  // Execution.
  bool running = false;  ///< a thread executes the first task
  bool has_thread = false;
  bool runnable = false;  ///< it is in the scheduler's list of streams that any thread may run
  int engine = -1;        ///< the copy engine that the first task holds
  std::condition_variable wake;  ///< wakes the stream's thread

  // Waiting threads and streams.
  std::vector<HostWait> host_waits;
  std::vector<Watcher> watchers;
  bool watching = false;  ///< it is itself a watcher of another stream

  // Order with the legacy default stream: the place up to which each side already waits for the
  // other.
  std::uint64_t legacy_awaited = 0;
  std::uint64_t awaited_by_legacy = 0;

  // Stream capture.
  Capture* capture = nullptr;
  std::vector<GraphNode*> capture_tail;  ///< the nodes that the next captured node follows
};

/// Returns a name for messages, such as "stream 3 of device 0".
std::string describe(const Stream& stream);

inline bool Mark::reached() const {
  return !stream || stream->completed >= sequence;
}

}  // namespace penstock::emulation::detail
