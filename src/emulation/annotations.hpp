// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the emulated runtime tells the sanitizers. Its own locks, threads and data are hidden from
// ThreadSanitizer, so that they order nothing in the user's program; the order that CUDA does
// guarantee is stated edge by edge. All of it works through weak symbols: one and the same library
// serves programs with and without sanitizers.

#include <cstddef>
#include <memory>

namespace penstock::emulation::detail {

/// True in a program that runs under ThreadSanitizer.
bool detects_races();

/// Hides what this thread does from ThreadSanitizer, for its life. Not to be nested; `Visible`
/// lifts it.
class [[nodiscard]] Hidden {
 public:
  Hidden();
  ~Hidden();
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};

/// Inside a `Hidden`: shows again what this thread does. For the user's functions and the user's
/// bytes.
class [[nodiscard]] Visible {
 public:
  Visible();
  ~Visible();
  Visible(const Visible&) = delete;
  Visible& operator=(const Visible&) = delete;
};

/// One edge of the guaranteed order: what a thread did before `release` happens before what a
/// thread does after a later `acquire`. To be called inside a `Hidden`. Ends with its memory, so an
/// Edge lives on the heap: ThreadSanitizer forgets an address when it is freed, and a recycled one
/// would order strangers.
class Edge {
 public:
  void release() noexcept;
  void acquire() const noexcept;

 private:
  mutable char address_ = 0;
};

/// Both ends of a task's life: its submission happens before its execution, its completion before
/// whatever waited for it.
struct TaskEdges {
  alignas(8) Edge submitted;
  alignas(8) Edge completed;
};

using TaskEdgesPtr = std::shared_ptr<TaskEdges>;  // null unless the program detects races

inline TaskEdgesPtr make_task_edges() {
  return detects_races() ? std::make_shared<TaskEdges>() : nullptr;
}

/// The life of a piece of device memory, for race detection. A stream-ordered allocation and a
/// stream-ordered free write it, and every copy and fill of the memory reads it: so each of them is
/// in order with the two, or is reported. Functions of the program's touch the memory itself, of
/// which the allocation and the free write the first bytes. To be used inside a `Hidden`; nothing
/// unless the program detects races.
class Life {
 public:
  void allocated(void* data, std::size_t bytes) noexcept;
  void freed(void* data, std::size_t bytes) noexcept;
  void used() const noexcept;

 private:
  void write(void* data, std::size_t bytes) noexcept;

  alignas(8) mutable char state_ = 0;
};

/// Makes AddressSanitizer report every access to these bytes, until `unpoison`. Nothing without it.
void poison(void* data, std::size_t bytes);
void unpoison(void* data, std::size_t bytes);

}  // namespace penstock::emulation::detail
