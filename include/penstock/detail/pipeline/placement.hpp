// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <penstock/placement.hpp>
#include <penstock/ranks.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE Placement Placement::automatic(const Ranks& ranks) {
  if (ranks.local_rank < 0 || ranks.local_rank >= ranks.local_size)
    throw std::invalid_argument("Placement::automatic: local_rank is " +
                                std::to_string(ranks.local_rank) + ", local_size " +
                                std::to_string(ranks.local_size) +
                                ": local_rank must be 0 or more, and less than local_size");
  return Placement({.local_rank = ranks.local_rank, .local_size = ranks.local_size});
}

PENSTOCK_INLINE Placement Placement::cores(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.empty())
    throw std::invalid_argument(
        "Placement::cores: no core is named: name one or more, or take Placement::off()");
  if (numbers.front() < 0)
    throw std::invalid_argument("Placement::cores: " + std::to_string(numbers.front()) +
                                " is no core: numbers are 0 or more, as lscpu shows them");
  return Placement({.kind = detail::PlacementRequest::Kind::cores, .cores = std::move(numbers)});
}

}  // namespace penstock
