// SPDX-License-Identifier: Apache-2.0
#pragma once

// How an image is stored and how it is to be shown: EXIF's eight orientations.

#include <cstddef>
#include <cstdint>
#include <penstock/images/view.hpp>
#include <span>

namespace penstock::images {

/// First rows or columns of the stored image are mirrored, then they are exchanged.
struct Orientation {
  bool mirror_rows = false;     ///< top and bottom
  bool mirror_columns = false;  ///< left and right
  bool transpose = false;
  friend bool operator==(const Orientation&, const Orientation&) = default;
};

/// Whether the contents of an APP1 marker are EXIF data. The first such marker of a file counts.
bool is_exif(std::span<const std::uint8_t> app1);

/// Of the contents of an APP1 marker: as its EXIF data say; as stored, where they say nothing or
/// are broken.
Orientation exif_orientation(std::span<const std::uint8_t> app1);

/// Of an image that is stored with `stored`.
ImageSize shown_size(const Orientation& orientation, ImageSize stored);

/// The view in coordinates of the image as it is stored, of size `stored`; its output is turned
/// alike. `flip` stays.
View stored_view(const Orientation& orientation, const View& shown, ImageSize stored);

/// The other direction.
View shown_view(const Orientation& orientation, const View& view, ImageSize stored);

/// Writes shown_size(stored.size) x 3 bytes.
void turn(const Orientation& orientation, const Pixels& stored, std::uint8_t* out);

}  // namespace penstock::images
