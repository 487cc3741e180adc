// SPDX-License-Identifier: Apache-2.0
#pragma once

// A task is one operation in the queue of a stream: what it does (Work), what it waits for besides
// the tasks before it (Marks), and its times.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "annotations.hpp"
#include "reference.hpp"

namespace penstock::emulation::detail {

class Event;
struct Stream;

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

/// A place in a stream: the end of its task number `sequence`.
struct Mark {
  Ref<Stream> stream;
  std::uint64_t sequence = 0;
  TaskEdgesPtr edges;

  bool reached() const;
};

// ---- What a task does

/// What the memory of an operand was at the call: an update of a graph may not change it.
struct Place {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = cudaInvalidDeviceId;  ///< of device and managed memory
  bool operator==(const Place&) const = default;
};

/// `height` rows of `width` bytes, or `depth` slices of them; a flat copy is one row.
struct CopyWork {
  void* destination;
  const void* source;
  std::size_t destination_pitch, source_pitch, width, height;
  cudaMemcpyKind direction;
  bool pageable;
  bool synchronous = false;  ///< by a call that is not one of the Async ones
  Place to{}, from{};
  std::size_t depth = 1, destination_slice = 0, source_slice = 0;

  std::size_t bytes() const { return width * height * depth; }
};

/// Rows as of CopyWork, filled with a value of 1, 2 or 4 bytes.
struct FillWork {
  void* destination;
  int value;
  std::size_t width, height = 1, depth = 1;
  std::size_t pitch = 0, slice = 0;
  bool synchronous = false;
  Place place{};
  unsigned element = 1;  ///< bytes of the value

  std::size_t bytes() const { return width * height * depth; }
};

struct HostWork {
  cudaHostFn_t function = nullptr;
  cudaStreamCallback_t callback = nullptr;  ///< of cudaStreamAddCallback, instead of `function`
  cudaStream_t stream = nullptr;            ///< what the callback is told
  void* data = nullptr;
};

/// Records the task's event.
struct RecordWork {
  std::uint64_t record;  ///< number of this record of the event: a later one outdates it
};

/// Waits for a record of the task's event, if another process has made it.
struct WaitWork {
  std::uint64_t record = 0;  ///< 0: by this process, it is one of Task::after
};

/// Stream-ordered allocation: the memory is there already, the program may touch it from here on.
struct AllocateWork {
  void* data;
  std::size_t bytes;
  std::uint64_t life = 0;  ///< number in its SharedBlock; 0: it has none
};

struct FreeWork {
  void* data;
  std::size_t bytes;
  std::uint64_t life = 0;       ///< as of AllocateWork
  bool of_this_process = true;  ///< otherwise nothing happens to the bytes
};

/// The begin or the end of a graph, or any place in a stream where nothing is done.
struct GraphWork {};

/// Nothing is done here: only the order counts. It is no operation that the program is told of.
struct JoinWork {};

using Work = std::variant<CopyWork, FillWork, HostWork, RecordWork, WaitWork, AllocateWork,
                          FreeWork, GraphWork, JoinWork>;

// ---- The task

/// Of Task::unmappings: the pointers were checked at another time, as those of a graph.
inline constexpr std::uint64_t kCheckAgain = ~std::uint64_t{0};

struct Task {
  Task* next = nullptr;
  Work work = GraphWork{};
  const char* name = nullptr;  ///< the call that submitted it
  std::uint64_t sequence = 0;  ///< in its stream, from 1
  std::uint64_t correlation = 0;
  std::uint64_t call = 0;  ///< number of that call while calls are observed
  Ref<Event> event;        ///< of RecordWork, and of WaitWork with a record
  std::vector<Mark> after;
  std::size_t reached = 0;  ///< how many of `after`, from the front, are known to be reached
  TaskEdgesPtr edges;
  std::unique_ptr<std::byte[]> staging;  ///< what a pageable source held at submission
  Ref<Counted> kept_alive;               ///< until the task is done
  std::uint64_t unmappings = 0;          ///< Memory::unmappings when the pointers were checked
  bool scheduled = false;                ///< `not_before` is decided
  Time looks_since{};                    ///< of WaitWork with a record: when it was first looked at
  bool counts = true;                    ///< takes a place in the queue: not inside a graph
  Time submitted, not_before, begin, end;
};

/// Tasks without a stream, kept for their memory: a pipeline in full flow allocates none.
class TaskStore {
 public:
  TaskStore() = default;
  TaskStore(const TaskStore&) = delete;
  TaskStore& operator=(const TaskStore&) = delete;
  ~TaskStore();

  Task* take();
  void give_back(Task* task);

 private:
  Task* free_ = nullptr;
};

}  // namespace penstock::emulation::detail
