// SPDX-License-Identifier: Apache-2.0
#include "shapes.hpp"

#include <algorithm>
#include <cstdlib>

#include "forms.hpp"
#include "random.hpp"

namespace shapes {
namespace {

// ---- Random numbers -----------------------------------------------------------------------------

using example_data::Random;
using forms::one;
using forms::Placement;
using forms::Point;

/// Streams of random numbers that must not meet: the images and the label orders of each split.
constexpr std::uint64_t image_stream = 0x100;
constexpr std::uint64_t order_stream = 0x200;

std::uint64_t stream_of(std::uint64_t base, Split split) {
  return base + static_cast<std::uint64_t>(split);
}

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
        covered +=
            forms::inside(label, placement.to_shape({x * one + sub.x, y * one + sub.y})) ? 1 : 0;
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
  const Point centre{random.between(11 * one, 21 * one), random.between(11 * one, 21 * one)};
  const int radius = random.between(8 * one, 13 * one);
  const Placement placement(centre, radius, random);
  const Colour colour = canvas.contrasting(random);
  paint(canvas, class_index, placement, colour);
  scatter(canvas, random);
  record[0] = static_cast<std::byte>(class_index);
  canvas.write(random, random.between(4, 28), record.subspan<1>());
}

}  // namespace shapes
