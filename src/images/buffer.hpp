// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory that is used again and again, and grows.

#include <cstddef>
#include <memory>

namespace penstock::images {

template <class T>
class Buffer {
 public:
  /// At least `count` values, which are not initialised; what was there before may be lost.
  T* room(std::size_t count) {
    if (count > count_) {
      values_.reset();  // first: never both
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
