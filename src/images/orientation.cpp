// SPDX-License-Identifier: Apache-2.0

#include "orientation.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

/// Reads numbers of a TIFF structure, in the byte order that it declares. Missing numbers are 0.
class Tiff {
 public:
  explicit Tiff(std::span<const std::uint8_t> bytes)
      : bytes_(bytes), little_(bytes.size() >= 8 && bytes[0] == 'I') {}

  std::uint32_t one(std::size_t at) const { return at < bytes_.size() ? bytes_[at] : 0; }
  std::uint32_t two(std::size_t at) const {
    if (at + 2 > bytes_.size()) return 0;
    const std::uint32_t first = bytes_[at], second = bytes_[at + 1];
    return little_ ? first | second << 8 : first << 8 | second;
  }
  std::uint32_t four(std::size_t at) const {
    const std::uint32_t first = two(at), second = two(at + 2);
    return little_ ? first | second << 16 : first << 16 | second;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool little_;
};

constexpr std::array<std::uint8_t, 6> kExif{'E', 'x', 'i', 'f', 0, 0};

/// Returns the first value of the directory entry at `at`. EXIF requires one SHORT here, but
/// writers use other integer types too. Returns 0 if it has none of these types, or if its values
/// are stored elsewhere.
std::uint32_t value_of_entry(const Tiff& tiff, std::size_t at) {
  const std::uint32_t type = tiff.two(at + 2), count = tiff.four(at + 4);
  const auto is_here = [count](std::uint32_t bytes) { return count >= 1 && count <= 4 / bytes; };
  switch (type) {
    case 1:  // BYTE, SBYTE
    case 6:
      return is_here(1) ? tiff.one(at + 8) : 0;
    case 3:  // SHORT, SSHORT
    case 8:
      return is_here(2) ? tiff.two(at + 8) : 0;
    case 4:  // LONG, SLONG
    case 9:
      return is_here(4) ? tiff.four(at + 8) : 0;
    default:
      return 0;
  }
}

/// Mirrors one direction: a region from `begin` on, and `outputs` pixels from `origin` on.
void mirror(std::int32_t& begin, std::int32_t length, double& origin, double step,
            std::int32_t outputs, std::int32_t side) {
  begin = side - begin - length;
  origin = side - origin - outputs * step;
}

View mirrored(const Orientation& orientation, View view, ImageSize size) {
  if (orientation.mirror_rows)
    mirror(view.region.top, view.region.height, view.origin_y, view.step_y, view.output.height,
           size.height);
  if (orientation.mirror_columns)
    mirror(view.region.left, view.region.width, view.origin_x, view.step_x, view.output.width,
           size.width);
  return view;
}

View transposed(const Orientation& orientation, View view) {
  if (!orientation.transpose) return view;
  std::swap(view.region.top, view.region.left);
  std::swap(view.region.height, view.region.width);
  std::swap(view.origin_y, view.origin_x);
  std::swap(view.step_y, view.step_x);
  std::swap(view.output.height, view.output.width);
  return view;
}

}  // namespace

bool is_exif(std::span<const std::uint8_t> app1) {
  return app1.size() >= kExif.size() && std::equal(kExif.begin(), kExif.end(), app1.begin());
}

Orientation exif_orientation(std::span<const std::uint8_t> app1) {
  if (!is_exif(app1)) return {};
  const Tiff tiff(app1.subspan(kExif.size()));
  if (tiff.two(2) != 42) return {};
  const std::size_t directory = tiff.four(4), entries = tiff.two(directory);
  constexpr std::uint32_t kOrientation = 0x0112;
  for (std::size_t entry = 0; entry < entries; ++entry) {
    const std::size_t at = directory + 2 + 12 * entry;
    if (tiff.two(at) != kOrientation) continue;
    constexpr std::array<Orientation, 9> kOrientations{{{},
                                                        {},
                                                        {false, true, false},
                                                        {true, true, false},
                                                        {true, false, false},
                                                        {false, false, true},
                                                        {true, false, true},
                                                        {true, true, true},
                                                        {false, true, true}}};
    const std::uint32_t value = value_of_entry(tiff, at);
    return value < kOrientations.size() ? kOrientations[value] : Orientation{};
  }
  return {};
}

ImageSize shown_size(const Orientation& orientation, ImageSize stored) {
  if (orientation.transpose) std::swap(stored.height, stored.width);
  return stored;
}

View stored_view(const Orientation& orientation, const View& shown, ImageSize stored) {
  return mirrored(orientation, transposed(orientation, shown), stored);
}

View shown_view(const Orientation& orientation, const View& view, ImageSize stored) {
  return transposed(orientation, mirrored(orientation, view, stored));
}

void turn(const Orientation& orientation, const Pixels& stored, std::uint8_t* out) {
  const ImageSize size = shown_size(orientation, stored.size);
  const std::uint8_t* first = stored.data;
  std::ptrdiff_t down = stored.stride, right = 3;
  if (orientation.mirror_rows) {
    first += (stored.size.height - 1) * down;
    down = -down;
  }
  if (orientation.mirror_columns) {
    first += (stored.size.width - 1) * right;
    right = -right;
  }
  if (orientation.transpose) std::swap(down, right);
  for (std::ptrdiff_t y = 0; y < size.height; ++y)
    for (std::ptrdiff_t x = 0; x < size.width; ++x)
      out = std::copy_n(first + y * down + x * right, 3, out);
}

}  // namespace penstock::images
