// SPDX-License-Identifier: Apache-2.0
#pragma once

// The forms of ten classes (disc, ring, triangle, ...), and where they lie in a picture. In
// integers: the same on every machine.

#include <cstdint>

#include "random.hpp"

namespace forms {

/// Coordinates are in fixed point with 8 fractional bits.
inline constexpr int one = 256;

struct Point {
  int x, y;
};

/// Is `p` inside the form of `label`, 0 to 9? The form is centred on 0 and lies about within the
/// unit circle.
bool inside(int label, Point p);

/// Position, size and rotation of a form.
class Placement {
 public:
  /// At a random rotation.
  Placement(Point centre, int radius, example_data::Random& random);

  /// Maps a point of the picture to the form's own coordinates.
  Point to_shape(Point p) const {
    const std::int64_t x = p.x - centre_.x, y = p.y - centre_.y;
    const std::int64_t scale = std::int64_t{radius_} * one;  // of the sine's 16 bits, 8 stay
    return {static_cast<int>((cosine_ * x + sine_ * y) / scale),
            static_cast<int>((cosine_ * y - sine_ * x) / scale)};
  }

 private:
  Point centre_;
  int radius_;
  std::int64_t cosine_, sine_;  // 16 fractional bits
};

}  // namespace forms
