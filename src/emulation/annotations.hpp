// SPDX-License-Identifier: Apache-2.0
#pragma once

// The annotations of the emulated runtime for the sanitizers. Its own locks, threads and data are
// hidden from ThreadSanitizer, so that they create no order in the user's program. Each order that
// CUDA guarantees is declared as an edge. Everything works through weak symbols, so the same
// library serves programs with and without sanitizers.

#include <cstddef>
#include <memory>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// True in a program that runs under ThreadSanitizer.
bool detects_races();

/// Hides the actions of this thread from ThreadSanitizer while the object exists. It must not be
/// nested; `Visible` interrupts it.
class [[nodiscard]] Hidden {
 public:
  Hidden();
  ~Hidden();
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};

/// Inside a `Hidden`: makes the actions of this thread visible again. It is used around the user's
/// functions and accesses to the user's bytes.
class [[nodiscard]] Visible {
 public:
  Visible();
  ~Visible();
  Visible(const Visible&) = delete;
  Visible& operator=(const Visible&) = delete;
};

/// One edge of the guaranteed order: what a thread did before `release` happens before what a
/// thread does after a later `acquire`. Call both inside a `Hidden`. An Edge must be on the heap:
/// ThreadSanitizer forgets an address when it is freed, while a reused address would order
/// unrelated actions.
class Edge {
 public:
  void release() noexcept;
  void acquire() const noexcept;

 private:
  mutable char address_ = 0;
};

/// The two edges of a task: its submission happens before its execution, and its completion happens
/// before the actions of those who waited for it.
struct TaskEdges {
  alignas(8) Edge submitted;
  alignas(8) Edge completed;
};

using TaskEdgesPtr = std::shared_ptr<TaskEdges>;  // null unless the program detects races

inline TaskEdgesPtr make_task_edges() {
  return detects_races() ? std::make_shared<TaskEdges>() : nullptr;
}

/// The lifetime of a piece of device memory, for race detection. A stream-ordered allocation and a
/// stream-ordered free write this object, and every copy and fill of the memory reads it. Thus a
/// copy that is not ordered with the allocation and the free is reported. The program's functions
/// access the memory itself; for them, the allocation and the free write its first bytes. Use it
/// inside a `Hidden`. It does nothing unless the program detects races.
class Life {
 public:
  void allocated(void* data, std::size_t bytes) noexcept;
  void freed(void* data, std::size_t bytes) noexcept;
  void used() const noexcept;

 private:
  void write(void* data, std::size_t bytes) noexcept;

  alignas(8) mutable char state_ = 0;
};

/// Makes AddressSanitizer report every access to these bytes until `unpoison`. Does nothing without
/// AddressSanitizer.
void poison(void* data, std::size_t bytes);
void unpoison(void* data, std::size_t bytes);

}  // namespace penstock::emulation::detail
