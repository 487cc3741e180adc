// SPDX-License-Identifier: Apache-2.0
#include "nesting_rows.hpp"

#include <algorithm>
#include <limits>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

constexpr Time kAny = std::numeric_limits<Time>::max();

}  // namespace

std::size_t NestingRows::place(const Event& event) {
  close_until(event.begin);
  if (open_.size() == leaves_) grow();
  const std::size_t row = first_with_room(event.end);
  if (row == open_.size()) open_.emplace_back();
  open_[row].push_back(event.end);
  open_ends_.emplace(event.end, row);
  set_room(row, event.end);
  return row;
}

void NestingRows::close_until(Time now) {
  while (!open_ends_.empty() && open_ends_.top().first <= now) {
    const std::size_t row = open_ends_.top().second;
    open_ends_.pop();
    std::vector<Time>& ends = open_[row];
    ends.pop_back();
    set_room(row, ends.empty() ? kAny : ends.back());
  }
}

std::size_t NestingRows::first_with_room(Time end) const {
  std::size_t node = 1;
  while (node < leaves_) node = 2 * node + (room_[2 * node] >= end ? 0 : 1);
  return node - leaves_;
}

void NestingRows::set_room(std::size_t row, Time end) {
  std::size_t node = leaves_ + row;
  room_[node] = end;
  for (node /= 2; node > 0; node /= 2) room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
}

void NestingRows::grow() {
  leaves_ = std::max<std::size_t>(1, 2 * leaves_);
  room_.assign(2 * leaves_, kAny);
  for (std::size_t row = 0; row < open_.size(); ++row)
    set_room(row, open_[row].empty() ? kAny : open_[row].back());
}

}  // namespace penstock::trace::detail
