// SPDX-License-Identifier: Apache-2.0
#include "forms.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

namespace forms {
namespace {

constexpr int squared(int a) {
  return a * a;
}
constexpr int dot(Point a, Point b) {
  return (a.x * b.x + a.y * b.y) / one;
}
constexpr int length_squared(Point p) {
  return squared(p.x) + squared(p.y);
}
bool in_box(Point p, int half) {
  return std::max(std::abs(p.x), std::abs(p.y)) <= half;
}

bool in_triangle(Point p) {  // equilateral, corners on the unit circle, so the sides are at 1/2
  constexpr std::array<Point, 3> normals = {{{0, 256}, {222, -128}, {-222, -128}}};
  return std::all_of(normals.begin(), normals.end(), [p](Point n) { return dot(p, n) <= one / 2; });
}

bool in_star(
    Point p) {  // five points: inside of at least four of the five long lines, at cos(72 degrees)
  constexpr std::array<Point, 5> normals = {
      {{0, 256}, {243, 79}, {150, -207}, {-150, -207}, {-243, 79}}};
  return std::count_if(normals.begin(), normals.end(), [p](Point n) { return dot(p, n) <= 79; }) >=
         4;
}

}  // namespace

bool inside(int label, Point p) {
  switch (label) {
    case 0:
      return length_squared(p) <= squared(205);
    case 1:
      return length_squared(p) <= squared(245) && length_squared(p) >= squared(140);
    case 2:
      return in_triangle(p);
    case 3:
      return in_box(p, 180);
    case 4:
      return in_box(p, 240) && (std::abs(p.x) <= 70 || std::abs(p.y) <= 70);
    case 5:
      return in_star(p);
    case 6:  // three bars of five bands, each 86 wide
      return in_box(p, 215) && (p.y + 215) / 86 % 2 == 0;
    case 7:
      return in_box(p, 215) && (p.x < 0) == (p.y < 0);
    case 8:
      return length_squared(p) <= squared(235) && length_squared({p.x - 110, p.y}) >= squared(190);
    default:
      return in_box(p, 200) && (p.x <= -60 || p.y >= 60);
  }
}

Placement::Placement(Point centre, int radius, example_data::Random& random)
    : centre_(centre), radius_(radius) {
  // With t = tan(angle / 2): cosine (1 - t^2) / (1 + t^2), sine 2 t / (1 + t^2). |t| up to
  // tan(22.5 degrees) covers a quarter turn; the other quarters follow by exchanging axes.
  const std::int64_t t = random.between(-424, 424), unit = 1024;
  cosine_ = (unit * unit - t * t) * one * one / (unit * unit + t * t);
  sine_ = 2 * t * unit * one * one / (unit * unit + t * t);
  for (int turns = random.between(0, 3); turns > 0; --turns)
    cosine_ = -std::exchange(sine_, cosine_);
}

}  // namespace forms
