// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ragged<T>: a field of a batch whose samples have different numbers of values, such as the tokens
// of a text or the boxes of an image. The values of all samples are contiguous, in the order of the
// rows; `offsets` has the beginning of each row.
//
//   struct Texts {
//     penstock::Ragged<std::int32_t> tokens;
//   };
//   penstock::Layout<Texts> layout{256};
//   layout.field(&Texts::tokens, penstock::Capacity{256 * 512});  // of a whole batch
//   const auto source = [](const penstock::Ticket& ticket, Texts& batch) {
//     for (std::size_t row = 0; row < ticket.samples.size(); ++row) {
//       const std::vector<std::int32_t> text(ticket.samples[row] % 512);
//       batch.tokens.assign(static_cast<std::int64_t>(row), text);  // once for each row
//     }
//   };
//
// In a kernel: batch.tokens.begin(row), batch.tokens.length(row).
//
// Like a Tensor it is a view: the same type on the host, on the device and as a kernel argument.
// Only the offsets and the values in use are copied to the device.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/detail/inline.hpp>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI {

/// The size of a ragged field: the most values that all samples of a batch may have together.
struct Capacity {
  /// Room for `number` values.
  template <std::integral Integer>
  explicit constexpr Capacity(Integer number) : values(static_cast<std::int64_t>(number)) {}

  /// Values of all samples of a batch together.
  std::int64_t values;
};

namespace detail {

struct RaggedRow {
  std::int64_t begin, length;
};

/// A batch has no room for a row. Which row that is depends on the order of the assignments.
class RaggedFull : public std::length_error {
 public:
  using std::length_error::length_error;
};

/// The assignments so far to a ragged field of a batch; a RaggedRow for each row of a full batch
/// follows in memory. It lies in the record of the batch. Workers share it: see
/// detail/memory/ragged.hpp.
struct RaggedFill {
  static constexpr std::int64_t unassigned = -1, being_assigned = -2;  // as a row's begin

  RaggedRow* rows() { return reinterpret_cast<RaggedRow*>(this + 1); }
  static std::size_t bytes(std::int64_t rows) {
    return sizeof(RaggedFill) + static_cast<std::size_t>(rows) * sizeof(RaggedRow);
  }

  std::int64_t used;         ///< values that were given out
  const char* name;          ///< of the field
  std::int64_t cleared = 0;  ///< of those that were given out, the values of rows that were cleared
  std::int64_t refused = 0;  ///< not 0: a row found no room
};

/// A type-erased Ragged.
struct RaggedParts {
  void* values = nullptr;
  std::int64_t* offsets = nullptr;  ///< rows + 1
  std::int64_t rows = 0, total = 0, capacity = 0;
  RaggedFill* fill = nullptr;  ///< only while a source fills the batch
};

/// Allocates `length` values for `row`; returns the index of the first. See Ragged::allocate.
std::int64_t allocate_row(const RaggedParts& ragged, std::int64_t row, std::int64_t length);
/// The place of a row in a batch that is being filled; empty if the row was not assigned.
RaggedRow filled_row(const RaggedParts& ragged, std::int64_t row);
/// The number of values that were assigned so far.
std::int64_t filled_total(const RaggedParts& ragged);

}  // namespace detail

/// A view of samples of different lengths: `size()` rows of values of type `T`, one row behind the
/// other. `T` is trivially copyable.
template <class T>
class Ragged : private detail::RaggedParts {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "the values of a ragged field must be trivially copyable and not const: they are "
                "copied to the device as bytes");

 public:
  /// The type of a value.
  using value_type = T;

  // ---- Host and device

  /// Number of rows, that is, samples.
  PENSTOCK_HOST_DEVICE std::int64_t size() const noexcept { return rows; }
  /// The values of all rows.
  PENSTOCK_HOST_DEVICE T* data() const noexcept { return static_cast<T*>(RaggedParts::values); }
  /// size() + 1 numbers: row r has the values from offsets()[r] to before offsets()[r + 1]. They
  /// are not written yet while a source fills the batch.
  PENSTOCK_HOST_DEVICE std::int64_t* offsets() const noexcept { return RaggedParts::offsets; }
  /// The first value of `row`, 0 <= row < size().
  PENSTOCK_HOST_DEVICE T* begin(std::int64_t row) const noexcept {
    return data() + place(row).begin;
  }
  /// The number of values of `row`, 0 <= row < size().
  PENSTOCK_HOST_DEVICE std::int64_t length(std::int64_t row) const noexcept {
    return place(row).length;
  }
  /// begin(row) and length(row). In a kernel, nvcc wants --expt-relaxed-constexpr for std::span.
  PENSTOCK_EXEC_CHECK_OFF
  PENSTOCK_HOST_DEVICE std::span<T> values(std::int64_t row) const noexcept {
    const detail::RaggedRow at = place(row);
    return std::span<T>(data() + at.begin, static_cast<std::size_t>(at.length));
  }
  /// The number of values of all rows. It is a member of the view, so a captured kernel has that of
  /// the captured batch: read offsets()[size()] instead (see StepGraph). In a batch that a
  /// DeviceTransform or an on_device source makes, it is the argument of set_total(), by default
  /// the capacity.
  PENSTOCK_HOST_DEVICE std::int64_t total() const noexcept {
#ifndef __CUDA_ARCH__
    if (fill != nullptr) return detail::filled_total(*this);
#endif
    return RaggedParts::total;
  }
  /// The most values that the field can hold.
  PENSTOCK_HOST_DEVICE std::int64_t capacity() const noexcept {
    return RaggedParts::capacity;
  }

  // ---- Host

  /// Copies `row_values` to `row`. For sources, while they fill the batch: once for each row, in
  /// any order, from any number of threads. A row that is never assigned is empty. Throws
  /// std::length_error, with the numbers, if the batch has no room for the values;
  /// std::out_of_range for a row that the batch does not have; std::logic_error for a row that was
  /// assigned before, and for a batch that no source is filling.
  void assign(std::int64_t row, std::span<const T> row_values) const {
    const std::span<T> room = allocate(row, static_cast<std::int64_t>(row_values.size()));
    if (!room.empty()) std::memcpy(room.data(), row_values.data(), room.size_bytes());
  }
  /// Like assign(), but returns `length` uninitialised values, which the source writes.
  std::span<T> allocate(std::int64_t row, std::int64_t length) const {
    const std::int64_t at = detail::allocate_row(*this, row, length);
    return std::span<T>(data() + at, static_cast<std::size_t>(length));
  }
  /// Sets total(). For transforms and sources that write values and offsets on the device, if the
  /// host knows the number.
  void set_total(std::int64_t number) noexcept {
    RaggedParts::total = number;
  }

 private:
  PENSTOCK_HOST_DEVICE detail::RaggedRow place(std::int64_t row) const noexcept {
#ifndef __CUDA_ARCH__
    if (fill != nullptr) return detail::filled_row(*this, row);
#endif
    const std::int64_t first = RaggedParts::offsets[row];
    return {first, RaggedParts::offsets[row + 1] - first};
  }
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/memory/ragged.hpp>
#endif
