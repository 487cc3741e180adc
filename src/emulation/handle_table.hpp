// SPDX-License-Identifier: Apache-2.0
#pragma once

// The handles that the program holds (cudaStream_t, cudaEvent_t, ...). A handle has the type of a
// pointer but is a number, not an address. It consists of the kind of the object, a slot and the
// slot's generation. Thus an unknown or destroyed handle, or one of the wrong kind, is recognised
// and never dereferenced, and no handle is ever reused.

#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>
#include <vector>

#include "reference.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

enum class HandleKind : std::uint64_t {
  stream = 1,
  event,
  graph,
  graph_exec,
  node,
  pool,
  user_object
};

/// Objects by handle. `T` is counted (reference.hpp); the table keeps one reference to each object.
/// Use it with the runtime's lock held.
template <class T, HandleKind kind>
class HandleTable {
 public:
  std::uint64_t add(Ref<T> object) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const std::size_t index = free_.back();
    free_.pop_back();
    Slot& slot = slots_[index];
    slot.object = std::move(object);
    slot.handle = (static_cast<std::uint64_t>(kind) << kKindShift) |
                  (next_generation_++ % kGenerations << kGenerationShift) | (index << kSlotShift);
    return slot.handle;
  }

  /// Returns null if `handle` is not, or no longer, a valid handle of this kind.
  T* find(std::uint64_t handle) const {
    const std::size_t index = slot_of(handle);
    return index < slots_.size() && slots_[index].handle == handle ? slots_[index].object.get()
                                                                   : nullptr;
  }

  /// Removes the object from the table. The handle is invalid afterwards.
  Ref<T> remove(std::uint64_t handle) {
    if (find(handle) == nullptr) return {};
    Slot& slot = slots_[slot_of(handle)];
    slot.handle = 0;
    free_.push_back(slot_of(handle));
    return std::move(slot.object);
  }

  /// Every handle in the table.
  std::vector<std::uint64_t> handles() const {
    std::vector<std::uint64_t> all;
    for (const Slot& slot : slots_)
      if (slot.handle != 0) all.push_back(slot.handle);
    return all;
  }

  /// Calls `visit(object)` for each object. `visit` must not change the table.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.handle != 0) visit(*slot.object);
  }

  std::size_t size() const { return slots_.size() - free_.size(); }

 private:
  // The bits of a handle from the lowest: 4 for alignment, 24 for the slot, 28 for the generation,
  // 8 for the kind.
  static constexpr unsigned kSlotShift = 4, kGenerationShift = 28, kKindShift = 56;
  static constexpr std::uint64_t kSlots = 1u << 24, kGenerations = 1u << 28;

  static std::size_t slot_of(std::uint64_t handle) { return (handle >> kSlotShift) % kSlots; }

  struct Slot {
    std::uint64_t handle = 0;  // 0: the slot is empty
    Ref<T> object;
  };
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
  // It belongs to the process, so that a handle from before a reset is invalid after it.
  // NOLINTNEXTLINE(readability-identifier-naming): a member
  static inline std::uint64_t next_generation_ = 1;
};

}  // namespace penstock::emulation::detail
