// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an operation reads and writes, for ThreadSanitizer to know of. The loops themselves are not
// instrumented (CMakeLists.txt says which files hold them): an operation tells the ranges once, in
// stream order, before it begins.
//
//   tell(reads(x, count));        // count elements from x on
//   tell(writes(y, count, 2));    // count elements of 2 bytes each
//
// That is all it takes to find a missing wait. Null pointers are operands that are not there; what
// is read and written is told as written. What an operation stores in 16 bits is said here, too:
// stores(y, count, Precision::fp16).

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../ops.hpp"

namespace resnet::reference {

struct Range {
  const void* memory;
  std::size_t bytes;
  bool written;
  Precision precision = Precision::fp32;  ///< of what is written
};

inline Range reads(const void* memory, std::int64_t count, std::size_t element_bytes) {
  return {memory, static_cast<std::size_t>(count) * element_bytes, false};
}
inline Range writes(const void* memory, std::int64_t count, std::size_t element_bytes) {
  return {memory, static_cast<std::size_t>(count) * element_bytes, true};
}

template <class T>
requires std::is_object_v<T> Range reads(const T* memory, std::int64_t count) {
  return reads(memory, count, sizeof(T));
}
template <class T>
requires std::is_object_v<T> Range writes(const T* memory, std::int64_t count) {
  return writes(memory, count, sizeof(T));
}

/// Written, and rounded to the precision behind the operation (enqueue.hpp).
inline Range stores(float* memory, std::int64_t count, Precision precision) {
  return {memory, static_cast<std::size_t>(count) * sizeof(float), true, precision};
}

/// Does nothing without ThreadSanitizer.
void tell(const Range& range);

}  // namespace resnet::reference
