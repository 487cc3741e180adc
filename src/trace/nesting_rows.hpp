// SPDX-License-Identifier: Apache-2.0
#pragma once

// Assigns the events of one track to rows, so that the events of each row nest.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <cstddef>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

class NestingRows {
 public:
  /// Returns the first row that can take the event, which must not begin before the earlier ones.
  /// That is a row with no open event, or one whose innermost open event ends no earlier. O(log n).
  std::size_t place(const Event& event);

  std::size_t size() const { return open_.size(); }

 private:
  using EndAndRow = std::pair<Time, std::size_t>;

  void close_until(Time now);
  std::size_t first_with_room(Time end) const;
  void set_room(std::size_t row, Time end);
  void grow();

  std::vector<std::vector<Time>>
      open_;  ///< for each row, the ends of its open events, innermost last
  /// All open events, the first to end on top. Within its row that event is the innermost.
  std::priority_queue<EndAndRow, std::vector<EndAndRow>, std::greater<>> open_ends_;
  /// A tournament tree: node k has the larger of 2k and 2k + 1; leaf `leaves_` + i has the latest
  /// end that an event in row i may have. A row that does not exist yet takes any event.
  std::vector<Time> room_;
  std::size_t leaves_ = 0;
};

}  // namespace penstock::trace::detail
