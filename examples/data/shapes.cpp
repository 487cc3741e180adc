// SPDX-License-Identifier: Apache-2.0
#include "shapes.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace shapes {
namespace {

// ---- Random numbers -----------------------------------------------------------------------------

/// SplitMix64: a counter and a mixer. Small, and the same everywhere, unlike std:: distributions.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream, std::uint64_t index)
      : state_(mix(mix(mix(seed) ^ stream) ^ index)) {}

  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15u); }

  /// Uniform in [low, high], both included.
  int between(int low, int high) {
    const auto range = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<int>((next() >> 32) * range >> 32);
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  std::uint64_t state_;
};

/// Streams of random numbers that must not meet: the images and the label orders of each split.
constexpr std::uint64_t image_stream = 0x100;
constexpr std::uint64_t order_stream = 0x200;

std::uint64_t stream_of(std::uint64_t base, Split split) {
  return base + static_cast<std::uint64_t>(split);
}

// ---- Geometry: fixed point with 8 fractional bits
// -------------------------------------------------

constexpr int one = 256;

struct Point {
  int x, y;
};

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

/// Is `p` inside the shape of `label`? The shape is centred on 0 and lies about within the unit
/// circle.
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

/// Where a shape lies: maps a point of the image to the shape's own coordinates.
class Placement {
 public:
  explicit Placement(Random& random)
      : centre_{random.between(11 * one, 21 * one), random.between(11 * one, 21 * one)},
        radius_(random.between(8 * one, 13 * one)) {
    // With t = tan(angle / 2): cosine (1 - t^2) / (1 + t^2), sine 2 t / (1 + t^2). |t| up to
    // tan(22.5 degrees) covers a quarter turn; the other quarters follow by exchanging axes.
    const std::int64_t t = random.between(-424, 424), unit = 1024;
    cosine_ = (unit * unit - t * t) * one * one / (unit * unit + t * t);
    sine_ = 2 * t * unit * one * one / (unit * unit + t * t);
    for (int turns = random.between(0, 3); turns > 0; --turns)
      cosine_ = -std::exchange(sine_, cosine_);
  }

  Point to_shape(Point p) const {
    const std::int64_t x = p.x - centre_.x, y = p.y - centre_.y;
    const std::int64_t scale = std::int64_t{radius_} * one;  // of the sine's 16 bits, 8 stay
    return {static_cast<int>((cosine_ * x + sine_ * y) / scale),
            static_cast<int>((cosine_ * y - sine_ * x) / scale)};
  }

 private:
  Point centre_;
  int radius_;
  std::int64_t cosine_ = 0, sine_ = 0;  // 16 fractional bits
};

// ---- Paint --------------------------------------------------------------------------------------

using Colour = std::array<int, cifar10::channels>;  // 0..255 each

Colour random_colour(Random& random) {
  return {random.between(20, 235), random.between(20, 235), random.between(20, 235)};
}

int distance(const Colour& a, const Colour& b) {
  int sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += std::abs(a[c] - b[c]);
  return sum;
}

/// Fills the canvas with a gradient between two colours, across or down, one way or the other.
class Canvas {
 public:
  void fill(Random& random) {
    from_ = random_colour(random);
    to_ = random_colour(random);
    const int direction = random.between(0, 3);
    for (int y = 0; y < cifar10::height; ++y)
      for (int x = 0; x < cifar10::width; ++x) {
        const int along = direction % 2 == 0 ? x : y;
        blend(x, y, from_, 64, 64);
        blend(x, y, to_, direction < 2 ? along : cifar10::width - 1 - along,
              64);  // half-way at most
      }
  }

  /// A colour that is seen against the whole background.
  Colour contrasting(Random& random) const {
    Colour colour = random_colour(random);
    while (std::min(distance(colour, from_), distance(colour, to_)) < 200) {
      colour = random_colour(random);
    }
    return colour;
  }

  /// Mixes `part` of `whole` of `colour` into a pixel.
  void blend(int x, int y, const Colour& colour, int part, int whole) {
    Colour& pixel =
        pixels_[static_cast<std::size_t>(y) * cifar10::width + static_cast<std::size_t>(x)];
    for (std::size_t c = 0; c < pixel.size(); ++c)
      pixel[c] = (colour[c] * part + pixel[c] * (whole - part)) / whole;
  }

  /// Adds noise and writes the planes. A byte of noise is the sum of four numbers, so near to a
  /// bell.
  void write(Random& random, int strength, std::span<std::byte> planes) const {
    for (std::size_t i = 0; i < pixels_.size(); ++i)
      for (std::size_t c = 0; c < cifar10::channels; ++c) {
        const std::uint64_t bits = random.next();
        int noise = -4 * 32768;
        for (int shift = 0; shift < 64; shift += 16)
          noise += static_cast<int>(bits >> shift & 0xFFFF);
        const int value = pixels_[i][c] + noise * strength / 65536;
        planes[c * cifar10::plane_bytes + i] = static_cast<std::byte>(std::clamp(value, 0, 255));
      }
  }

 private:
  std::array<Colour, cifar10::plane_bytes> pixels_{};
  Colour from_{}, to_{};
};

/// Draws a shape with smooth edges: each pixel takes as much of the colour as its 2 x 2 sub-samples
/// say.
void paint(Canvas& canvas, int label, const Placement& placement, const Colour& colour) {
  for (int y = 0; y < cifar10::height; ++y)
    for (int x = 0; x < cifar10::width; ++x) {
      int covered = 0;
      for (const Point sub : {Point{64, 64}, Point{192, 64}, Point{64, 192}, Point{192, 192}})
        covered += inside(label, placement.to_shape({x * one + sub.x, y * one + sub.y})) ? 1 : 0;
      if (covered > 0) canvas.blend(x, y, colour, covered, 4);
    }
}

/// Small squares in random colours, anywhere.
void scatter(Canvas& canvas, Random& random) {
  for (int i = random.between(0, 4); i > 0; --i) {
    const Colour colour = random_colour(random);
    const int side = random.between(1, 3);
    const int left = random.between(0, cifar10::width - side),
              top = random.between(0, cifar10::height - side);
    for (int y = top; y < top + side; ++y)
      for (int x = left; x < left + side; ++x) canvas.blend(x, y, colour, 1, 1);
  }
}

}  // namespace

int label(std::uint64_t seed, Split split, std::uint64_t index) {
  Random random(seed, stream_of(order_stream, split), index / cifar10::classes);
  std::array<int, cifar10::classes> order{};
  for (int i = 0; i < cifar10::classes; ++i) {  // Fisher-Yates, from the inside out
    const auto here = static_cast<std::size_t>(i),
               there = static_cast<std::size_t>(random.between(0, i));
    order[here] = order[there];
    order[there] = i;
  }
  return order[index % cifar10::classes];
}

void draw(std::uint64_t seed, Split split, std::uint64_t index,
          std::span<std::byte, cifar10::record_bytes> record) {
  const int class_index = label(seed, split, index);
  Random random(seed, stream_of(image_stream, split), index);
  Canvas canvas;
  canvas.fill(random);
  const Placement placement(random);
  const Colour colour = canvas.contrasting(random);
  paint(canvas, class_index, placement, colour);
  scatter(canvas, random);
  record[0] = static_cast<std::byte>(class_index);
  canvas.write(random, random.between(4, 28), record.subspan<1>());
}

}  // namespace shapes
