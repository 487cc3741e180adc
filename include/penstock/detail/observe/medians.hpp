// SPDX-License-Identifier: Apache-2.0
#pragma once

// Medians: finds medians without allocating.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace penstock::detail {

class Medians {
 public:
  /// Allocates room for `most` values.
  explicit Medians(std::size_t most) : values_(most) {}

  /// Of value_of(0), ..., value_of(count - 1); 0 of none.
  template <class ValueOf>
  double of(std::size_t count, ValueOf value_of) {
    count_ = 0;
    for (std::size_t k = 0; k < count; ++k) add(value_of(k));
    return of_added();
  }

  // Value by value:
  void clear() { count_ = 0; }
  void add(double value) { values_[count_++] = value; }
  std::size_t count() const { return count_; }
  /// The i-th value that was added.
  double at(std::size_t i) const { return values_[i]; }
  /// Of what was added; 0 of nothing. Changes their order.
  double of_added() {
    if (count_ == 0) return 0;
    const auto middle = values_.begin() + static_cast<std::ptrdiff_t>(count_ / 2);
    std::nth_element(values_.begin(), middle,
                     values_.begin() + static_cast<std::ptrdiff_t>(count_));
    return *middle;
  }

 private:
  std::vector<double> values_;
  std::size_t count_ = 0;
};

}  // namespace penstock::detail
