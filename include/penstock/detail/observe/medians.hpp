// SPDX-License-Identifier: Apache-2.0
#pragma once

// Medians: computes medians without allocation. The median of no values is 0.

#include <algorithm>
#include <cstddef>
#include <penstock/version.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class Medians {
 public:
  /// Allocates room for `most` values.
  explicit Medians(std::size_t most) { values_.reserve(most); }

  /// Returns the median of value_of(0), ..., value_of(count - 1).
  template <class ValueOf>
  double of(std::size_t count, ValueOf value_of) {
    clear();
    for (std::size_t k = 0; k < count; ++k) add(value_of(k));
    return of_added();
  }
  /// Returns the median of a member over all objects.
  template <class T>
  double of(const std::vector<T>& all, double T::*member) {
    return of(all.size(), [&](std::size_t k) { return all[k].*member; });
  }

  // Value by value:
  void clear() { values_.clear(); }
  void add(double value) { values_.push_back(value); }
  /// The values that were added, in that order until of_added() changes it.
  const std::vector<double>& added() const { return values_; }
  /// Returns the median of the values that were added. Changes their order.
  double of_added() {
    if (values_.empty()) return 0;
    const auto middle = values_.begin() + static_cast<std::ptrdiff_t>(values_.size() / 2);
    std::nth_element(values_.begin(), middle, values_.end());
    return *middle;
  }

 private:
  std::vector<double> values_;
};

}  // namespace penstock::detail
