// SPDX-License-Identifier: Apache-2.0

#include "needed.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

/// One direction of a view.
struct Axis {
  std::int32_t begin, end;
  double origin, step;
  std::int32_t outputs;
};
Axis rows_of(const View& view) {
  return {view.region.top, view.region.top + view.region.height, view.origin_y, view.step_y,
          view.output.height};
}
Axis columns_of(const View& view) {
  return {view.region.left, view.region.left + view.region.width, view.origin_x, view.step_x,
          view.output.width};
}

void require(bool good, const char* what) {
  if (!good) throw std::invalid_argument(what);
}

void require_within(std::int32_t begin, std::int32_t length, std::int32_t side) {
  require(begin >= 0 && length > 0 && begin <= side - length,
          "the view's region is empty or not within the image");
}

void require_centres(const Axis& axis) {
  require(axis.outputs > 0, "the view's output is empty");
  const double first = axis.origin + 0.5 * axis.step;
  const double last = axis.origin + (axis.outputs - 0.5) * axis.step;
  // The comparison is written so that it is false for NaN.
  require(axis.step > 0 && first >= axis.begin && last <= axis.end,
          "the view's output reaches beyond its region");
}

struct Range {
  std::int32_t begin, length;
};
Range needed(const Axis& axis) {
  const double reach = std::max(axis.step, 1.0);
  const double first = axis.origin + 0.5 * axis.step - reach;
  const double last = axis.origin + (axis.outputs - 0.5) * axis.step + reach;
  const auto begin = static_cast<std::int32_t>(std::max<double>(std::floor(first), axis.begin));
  const auto end = static_cast<std::int32_t>(std::min<double>(std::ceil(last), axis.end));
  return {begin, end - begin};
}

/// Returns whole pixels that cover all of [begin, begin + length) at n/8 of the size.
Range scaled(std::int32_t begin, std::int32_t length, std::int64_t eighths, std::int32_t side) {
  const std::int64_t first = begin * eighths / 8;
  const std::int64_t end = std::min<std::int64_t>((begin + length) * eighths + 7, 8L * side) / 8;
  return {static_cast<std::int32_t>(first), static_cast<std::int32_t>(end - first)};
}

}  // namespace

void require_within(const View& view, ImageSize image) {
  require_within(view.region.top, view.region.height, image.height);
  require_within(view.region.left, view.region.width, image.width);
  require_centres(rows_of(view));
  require_centres(columns_of(view));
}

int smallest_eighths(const View& view) {
  const double step = std::min(view.step_y, view.step_x);
  for (const int eighths : {1, 2, 4})
    if (step * eighths >= 8) return eighths;
  return 8;
}

View scaled_view(const View& view, int eighths, ImageSize size) {
  const double factor = eighths / 8.0;
  View result = view;
  const Range rows = scaled(view.region.top, view.region.height, eighths, size.height);
  const Range columns = scaled(view.region.left, view.region.width, eighths, size.width);
  result.region = {rows.begin, columns.begin, rows.length, columns.length};
  result.origin_y *= factor;
  result.origin_x *= factor;
  result.step_y *= factor;
  result.step_x *= factor;
  return result;
}

Region needed_region(const View& view) {
  const Range rows = needed(rows_of(view)), columns = needed(columns_of(view));
  return {rows.begin, columns.begin, rows.length, columns.length};
}

View within(const View& view, const Region& part) {
  View result = view;
  const Region needed = needed_region(view);
  result.region = {needed.top - part.top, needed.left - part.left, needed.height, needed.width};
  result.origin_y -= part.top;
  result.origin_x -= part.left;
  return result;
}

}  // namespace penstock::images
