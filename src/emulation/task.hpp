// SPDX-License-Identifier: Apache-2.0
#pragma once

// A task is one operation in the queue of a stream. It has the work to do (Work), the marks to wait
// for besides the earlier tasks (Mark), and its times.

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/version.hpp>
#include <variant>
#include <vector>

#include "annotations.hpp"
#include "reference.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class Event;
struct Stream;

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

/// A place in a stream: the end of the task with number `sequence`.
struct Mark {
  Ref<Stream> stream;
  std::uint64_t sequence = 0;
  TaskEdgesPtr edges;

  bool reached() const;
};

// ---- What a task does

/// The kind of memory of an operand at the call. An update of a graph may not change it.
struct Place {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = cudaInvalidDeviceId;  ///< for device and managed memory
  bool operator==(const Place&) const = default;
};

/// A copy of `height` rows of `width` bytes, or of `depth` slices of such rows. A flat copy is one
/// row.
struct CopyWork {
  void* destination;
  const void* source;
  std::size_t destination_pitch, source_pitch, width, height;
  cudaMemcpyKind direction;
  bool pageable;
  bool synchronous = false;  ///< made by a call without the Async suffix
  Place to{}, from{};
  std::size_t depth = 1, destination_slice = 0, source_slice = 0;

  std::size_t bytes() const { return width * height * depth; }
};

/// Fills rows, described as in CopyWork, with a value of 1, 2 or 4 bytes.
struct FillWork {
  void* destination;
  int value;
  std::size_t width, height = 1, depth = 1;
  std::size_t pitch = 0, slice = 0;
  bool synchronous = false;
  Place place{};
  unsigned element = 1;  ///< size of the value in bytes

  std::size_t bytes() const { return width * height * depth; }
};

struct HostWork {
  cudaHostFn_t function = nullptr;
  cudaStreamCallback_t callback = nullptr;  ///< of cudaStreamAddCallback, instead of `function`
  cudaStream_t stream = nullptr;            ///< the argument of the callback
  void* data = nullptr;
};

/// Records the task's event.
struct RecordWork {
  std::uint64_t record;  ///< number of this record of the event; a later record replaces it
};

/// Waits for a record of the task's event that another process has made.
struct WaitWork {
  std::uint64_t record = 0;  ///< 0: the record is of this process, and is one of Task::after
};

/// Stream-ordered allocation: the memory is mapped already, and the program may use it from here
/// on.
struct AllocateWork {
  void* data;
  std::size_t bytes;
  std::uint64_t life = 0;  ///< number in its SharedBlock; 0: it has none
};

struct FreeWork {
  void* data;
  std::size_t bytes;
  std::uint64_t life = 0;       ///< as in AllocateWork
  bool of_this_process = true;  ///< if false, the bytes are not changed
};

/// The begin or the end of a graph, or another place in a stream that does no work.
struct GraphWork {};

/// Does no work and only adds order. Observers and the timeline do not see it.
struct JoinWork {};

using Work = std::variant<CopyWork, FillWork, HostWork, RecordWork, WaitWork, AllocateWork,
                          FreeWork, GraphWork, JoinWork>;

// ---- The task

/// A value of Task::unmappings: the pointers were checked at another time, like those of a graph.
inline constexpr std::uint64_t kCheckAgain = ~std::uint64_t{0};

struct Task {
  Task* next = nullptr;
  Work work = GraphWork{};
  const char* name = nullptr;  ///< the call that submitted it
  std::uint64_t sequence = 0;  ///< in its stream, from 1
  std::uint64_t correlation = 0;
  std::uint64_t call = 0;  ///< number of that call, if calls are observed
  Ref<Event> event;        ///< for RecordWork, and for WaitWork with a record
  std::vector<Mark> after;
  std::size_t reached = 0;  ///< how many of the first entries of `after` are known to be reached
  TaskEdgesPtr edges;
  std::unique_ptr<std::byte[]> staging;  ///< the content of a pageable source at submission
  Ref<Counted> kept_alive;               ///< an object that is kept until the task is done
  std::uint64_t unmappings = 0;  ///< the value of Memory::unmappings when the pointers were checked
  bool scheduled = false;        ///< whether `not_before` is decided
  Time looks_since{};            ///< for WaitWork with a record: when it was first examined
  bool counts = true;  ///< whether it counts towards the queue's length; not inside a graph
  Time submitted, not_before, begin, end;
};

/// Unused tasks. Their memory is reused, so that a pipeline in steady state allocates none.
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
