// SPDX-License-Identifier: Apache-2.0
#pragma once

// A memory buffer that is reused and grows.

#include <cstddef>
#include <memory>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::images {

template <class T>
class Buffer {
 public:
  /// Returns room for at least `count` values, which are not initialised. The earlier content may
  /// be lost.
  T* room(std::size_t count) {
    if (count > count_) {
      values_.reset();  // The old memory is freed first, so that both never exist together.
      count_ = 0;
      values_ = std::make_unique_for_overwrite<T[]>(count);
      count_ = count;
    }
    return values_.get();
  }
  T* data() const { return values_.get(); }

 private:
  std::unique_ptr<T[]> values_;
  std::size_t count_ = 0;
};

}  // namespace penstock::images
