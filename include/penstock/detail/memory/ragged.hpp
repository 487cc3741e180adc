// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <penstock/ragged.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

// Workers access a fill concurrently, through atomic_ref. The thread that calls finish_fill() has
// synchronised with all of them.

/// Creates a fill with `rows` unassigned rows in `memory`.
PENSTOCK_INLINE RaggedFill* begin_fill(std::byte* memory, std::int64_t rows, const char* name) {
  auto* fill = new (memory) RaggedFill{0, name};
  std::fill_n(fill->rows(), rows, RaggedRow{RaggedFill::unassigned, 0});
  return fill;
}

PENSTOCK_INLINE std::int64_t load_relaxed(std::int64_t& number) {
  return std::atomic_ref(number).load(std::memory_order_relaxed);
}

[[noreturn]] PENSTOCK_INLINE void throw_full(const RaggedParts& ragged, std::int64_t row,
                                             std::int64_t length, std::int64_t used) {
  std::atomic_ref(ragged.fill->refused).store(1, std::memory_order_relaxed);
  const std::int64_t cleared = load_relaxed(ragged.fill->cleared);
  throw RaggedFull("Ragged::assign: row " + std::to_string(row) + " of field " + ragged.fill->name +
                   " has " + std::to_string(length) + " values, those assigned so far have " +
                   std::to_string(used) +
                   (cleared == 0 ? ""
                                 : " (" + std::to_string(cleared) +
                                       " of them in attempts that failed and were replaced)") +
                   ", and a batch has room for " + std::to_string(ragged.capacity) +
                   ": raise the field's Capacity");
}

/// Allocates `length` of the remaining values. Returns the first.
PENSTOCK_INLINE std::int64_t take_room(const RaggedParts& ragged, std::int64_t row,
                                       std::int64_t length) {
  const std::atomic_ref used(ragged.fill->used);
  std::int64_t begin = used.load(std::memory_order_relaxed);
  do {
    if (length > ragged.capacity - begin) throw_full(ragged, row, length, begin);
  } while (!used.compare_exchange_weak(begin, begin + length, std::memory_order_relaxed));
  return begin;
}

PENSTOCK_INLINE std::int64_t allocate_row(const RaggedParts& ragged, std::int64_t row,
                                          std::int64_t length) {
  if (ragged.fill == nullptr)
    throw std::logic_error(
        "Ragged::assign: no source is filling this batch; a transform, or a source that writes the "
        "device, writes values and offsets itself");
  const char* const name = ragged.fill->name;
  if (row < 0 || row >= ragged.rows)
    throw std::out_of_range("Ragged::assign: row " + std::to_string(row) + " of field " + name +
                            ", in a batch of " + std::to_string(ragged.rows) + " rows");
  if (length < 0)
    throw std::length_error("Ragged::allocate: row " + std::to_string(row) + " of field " + name +
                            " has " + std::to_string(length) + " values");
  RaggedRow& place = ragged.fill->rows()[row];
  const std::atomic_ref begin(place.begin);
  std::int64_t free = RaggedFill::unassigned;
  if (!begin.compare_exchange_strong(free, RaggedFill::being_assigned, std::memory_order_relaxed))
    throw std::logic_error("Ragged::assign: row " + std::to_string(row) + " of field " + name +
                           " was assigned before");
  try {
    place.length = length;
    const std::int64_t at = take_room(ragged, row, length);
    begin.store(at, std::memory_order_relaxed);
    return at;
  } catch (...) {
    begin.store(RaggedFill::unassigned, std::memory_order_relaxed);
    throw;
  }
}

PENSTOCK_INLINE RaggedRow filled_row(const RaggedParts& ragged, std::int64_t row) {
  RaggedRow& place = ragged.fill->rows()[row];
  const std::int64_t begin = load_relaxed(place.begin);
  return begin < 0 ? RaggedRow{0, 0} : RaggedRow{begin, place.length};
}

PENSTOCK_INLINE std::int64_t filled_total(const RaggedParts& ragged) {
  return load_relaxed(ragged.fill->used) - load_relaxed(ragged.fill->cleared);
}

/// Makes `row` unassigned again. Its values stay in use. If they were free again, it would depend
/// on the order in which workers fill rows whether another row finds room.
PENSTOCK_INLINE void clear_filled_row(const RaggedParts& ragged, std::int64_t row) {
  RaggedRow& place = ragged.fill->rows()[row];
  if (place.begin >= 0)
    std::atomic_ref(ragged.fill->cleared).fetch_add(place.length, std::memory_order_relaxed);
  place = {RaggedFill::unassigned, 0};
}

/// Ends the fill: makes the rows that are not in `dropped` contiguous and ordered, and writes their
/// offsets. The values, of `value_bytes` bytes each, are moved through `spare` if necessary.
PENSTOCK_INLINE void finish_fill(RaggedParts& ragged, std::size_t value_bytes,
                                 std::span<const std::int64_t> dropped,
                                 std::vector<std::byte>& spare) {
  auto* const values = static_cast<std::byte*>(ragged.values);
  const auto bytes = [&](std::int64_t number) {
    return static_cast<std::size_t>(number) * value_bytes;
  };
  std::int64_t kept = 0, total = 0, first_moved = -1;
  for (std::int64_t row = 0; row < ragged.rows; ++row) {
    if (!dropped.empty() && dropped.front() == row) {
      dropped = dropped.subspan(1);
      continue;
    }
    const RaggedRow from = filled_row(ragged, row);
    if (first_moved < 0 && from.length != 0 && from.begin != total) {
      first_moved = total;
      if (spare.size() < bytes(ragged.capacity)) spare.resize(bytes(ragged.capacity));
    }
    if (first_moved >= 0 && from.length != 0)
      std::memcpy(spare.data() + bytes(total), values + bytes(from.begin), bytes(from.length));
    ragged.offsets[kept++] = total;
    total += from.length;
  }
  ragged.offsets[kept] = total;
  if (first_moved >= 0)
    std::memcpy(values + bytes(first_moved), spare.data() + bytes(first_moved),
                bytes(total - first_moved));
  ragged.rows = kept;
  ragged.total = total;
  ragged.fill = nullptr;
}

}  // namespace penstock::detail
