// SPDX-License-Identifier: Apache-2.0
#include "pictures.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "forms.hpp"
#include "random.hpp"
#include "shapes.hpp"

namespace pictures {
namespace {

using example_data::Random;
using forms::one;
using forms::Placement;
using forms::Point;

/// Streams of random numbers that must not meet.
constexpr std::uint64_t look_stream = 0x300;
constexpr std::uint64_t paint_stream = 0x400;

std::uint64_t stream_of(std::uint64_t base, Split split) {
  return base + static_cast<std::uint64_t>(split);
}

// ---- Background ---------------------------------------------------------------------------------

/// Values in sixteenths of a grey level, of the points of a lattice.
struct Lattice {
  Lattice(int columns, int rows)
      : width(columns),
        height(rows),
        values(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows)) {}
  int& at(int x, int y) { return values[index(x, y)]; }
  int at(int x, int y) const { return values[index(x, y)]; }
  std::size_t index(int x, int y) const {
    return static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
           static_cast<std::size_t>(x);
  }

  int width, height;
  std::vector<int> values;
};

/// Twice as fine, with the mean of the neighbours between them.
Lattice refined(const Lattice& coarse, int columns, int rows) {
  Lattice fine(columns, rows);
  for (int y = 0; y < rows; ++y)
    for (int x = 0; x < columns; ++x) {
      const int left = x / 2, right = left + x % 2, top = y / 2, bottom = top + y % 2;
      fine.at(x, y) = (coarse.at(left, top) + coarse.at(right, top) + coarse.at(left, bottom) +
                       coarse.at(right, bottom)) /
                      4;
    }
  return fine;
}

/// Adds four numbers of each draw, uniform in [-strength, strength).
void add_noise(Lattice& lattice, int strength, Random& random) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < lattice.values.size(); ++i, bits >>= 16) {
    if (i % 4 == 0) bits = random.next();
    lattice.values[i] += static_cast<int>(bits & 0xFFFF) * 2 * strength / 65536 - strength;
  }
}

/// A plane whose power falls with the square of the frequency: the same strength in each octave,
/// from 256 pixels down to 2^finest, where it is `last`.
Lattice octaves(int width, int height, int finest, int strength, int last, Random& random) {
  const auto points = [](int pixels, int level) { return ((pixels - 1) >> level) + 2; };
  constexpr int coarsest = 8;
  Lattice lattice(points(width, coarsest), points(height, coarsest));
  add_noise(lattice, strength, random);
  for (int level = coarsest - 1; level >= 0; --level) {
    lattice = refined(lattice, points(width, level), points(height, level));
    if (level >= finest) add_noise(lattice, level == finest ? last : strength, random);
  }
  return lattice;
}

using Colour = std::array<int, 3>;  // 0..255 each

/// Brightness varies in all octaves, colour in the coarse ones.
Picture background(std::int32_t width, std::int32_t height, Random& random) {
  const Lattice bright = octaves(width, height, 0, 300, 290, random);
  const Lattice blue = octaves(width, height, 2, 110, 60, random);
  const Lattice red = octaves(width, height, 2, 110, 60, random);
  const Colour mean = {random.between(70, 185), random.between(70, 185), random.between(70, 185)};
  Picture picture{width, height, {}};
  picture.rgb.reserve(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const int grey = bright.at(x, y), b = blue.at(x, y), r = red.at(x, y);
      const Colour shift = {grey + r, grey - (r + b) / 3, grey + b};
      for (std::size_t c = 0; c < 3; ++c)
        picture.rgb.push_back(
            static_cast<std::uint8_t>(std::clamp(mean[c] + shift[c] / 16, 0, 255)));
    }
  return picture;
}

// ---- Forms --------------------------------------------------------------------------------------

/// A saturated colour; `hue` in 0..1535, once around the circle.
Colour of_hue(int hue) {
  const int sector = hue / 256, part = hue % 256;
  switch (sector) {
    case 0:
      return {255, part, 0};
    case 1:
      return {255 - part, 255, 0};
    case 2:
      return {0, 255, part};
    case 3:
      return {0, 255 - part, 255};
    case 4:
      return {part, 0, 255};
    default:
      return {255, 0, 255 - part};
  }
}

int colours(const Options& options) {
  return (options.classes + 9) / 10;
}

/// Any colour where ten classes are told apart by form alone; otherwise the colour of the class.
Colour colour_of(const Options& options, int label, Random& random) {
  const int count = colours(options);
  const int hue = count == 1 ? random.between(0, 1535)
                             : (label / 10 * 1536 + random.between(0, 1535) / 3) / count % 1536;
  return of_hue(hue);
}

/// Draws a form, of which the background shows through a little: its edges are smooth, and it is
/// never flat.
void draw(Picture& picture, int form, Point centre, int radius, const Colour& colour,
          Random& random) {
  const Placement placement({centre.x * one, centre.y * one}, radius * one, random);
  const int bound = radius + radius / 8;
  for (int y = std::max(0, centre.y - bound); y < std::min(picture.height, centre.y + bound); ++y)
    for (int x = std::max(0, centre.x - bound); x < std::min(picture.width, centre.x + bound);
         ++x) {
      int covered = 0;
      for (const Point sub : {Point{64, 64}, Point{192, 64}, Point{64, 192}, Point{192, 192}})
        if (forms::inside(form, placement.to_shape({x * one + sub.x, y * one + sub.y}))) ++covered;
      if (covered == 0) continue;
      std::uint8_t* pixel =
          &picture.rgb[3 * (static_cast<std::size_t>(y) * static_cast<std::size_t>(picture.width) +
                            static_cast<std::size_t>(x))];
      for (std::size_t c = 0; c < 3; ++c)
        pixel[c] = static_cast<std::uint8_t>((colour[c] * covered + pixel[c] * (8 - covered)) / 8);
    }
}

/// So many, and so small, that nearly every crop shows some.
void draw_forms(Picture& picture, const Options& options, int label, Random& random) {
  const int side = std::min(picture.width, picture.height);
  for (int i = random.between(12, 20); i > 0; --i) {
    const int radius = std::max(4, side * random.between(7, 15) / 100);
    const int x = random.between(0, picture.width - 1), y = random.between(0, picture.height - 1);
    draw(picture, label % 10, {x, y}, radius, colour_of(options, label, random), random);
  }
}

// ---- Sizes and formats --------------------------------------------------------------------------

struct Size {
  std::int32_t width, height;
};

Size size_of(const Options& options, Random& random) {
  const int which = random.between(0, 99), a = random.between(120, 500),
            b = random.between(120, 500), large = random.between(640, 2000);
  if (options.width > 0) return {options.width, options.height};
  if (which < 50) return {500, 375};
  if (which < 65) return {375, 500};
  if (which < 78) return {500, a < 200 ? 333 : a};
  if (which < 90) return {a, b};
  return {large, large * random.between(60, 130) / 100};
}

jpeg_writer::Format format_of(const Options& options, Random& random) {
  const int which = random.between(0, 999), turn = random.between(0, 2);
  jpeg_writer::Format format;
  format.quality = options.quality;
  if (options.plain) return format;
  if (which < 30) format.progressive = true;
  if (which >= 20 && which < 40) format.grey = true;  // Some are both.
  if (which >= 40 && which < 50) format.inks = true;
  if (which >= 50 && which < 70)
    format.orientation = std::array{3, 6, 8}[static_cast<std::size_t>(turn)];
  if (which >= 100 && which < 200) format.sampling = jpeg_writer::Sampling::s444;
  if (which >= 200 && which < 250) format.sampling = jpeg_writer::Sampling::s422;
  return format;
}

}  // namespace

Look look(const Options& options, Split split, std::uint64_t index) {
  Random random(options.seed, stream_of(look_stream, split), index);
  const Size size = size_of(options, random);
  return {size.width, size.height, format_of(options, random)};
}

int label(const Options& options, std::uint64_t index) {
  return static_cast<int>(index % static_cast<std::uint64_t>(options.classes));
}

std::string class_name(const Options& options, int label) {
  const std::string colour = std::to_string(label / 10);
  const std::string form = shapes::names[static_cast<std::size_t>(label % 10)];
  return colours(options) == 1 ? form : form + "_" + (colour.size() < 2 ? "0" : "") + colour;
}

Picture paint(const Options& options, Split split, std::uint64_t index) {
  const Look size = look(options, split, index);
  Random random(options.seed, stream_of(paint_stream, split), index);
  Picture picture = background(size.width, size.height, random);
  draw_forms(picture, options, label(options, index), random);
  return picture;
}

}  // namespace pictures
