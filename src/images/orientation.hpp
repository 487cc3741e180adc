// SPDX-License-Identifier: Apache-2.0
#pragma once

// EXIF's eight orientations: how a stored image has to be turned for display.

#include <cstddef>
#include <cstdint>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::images {

/// The rows or columns of the stored image are mirrored first; then rows and columns are exchanged.
struct Orientation {
  bool mirror_rows = false;     ///< mirror top and bottom
  bool mirror_columns = false;  ///< mirror left and right
  bool transpose = false;
  friend bool operator==(const Orientation&, const Orientation&) = default;
};

/// Whether the contents of an APP1 marker are EXIF data. The first such marker of a file counts.
bool is_exif(std::span<const std::uint8_t> app1);

/// Reads the orientation from the contents of an APP1 marker. The image stays as stored if the EXIF
/// data do not give one or are broken.
Orientation exif_orientation(std::span<const std::uint8_t> app1);

/// The size after turning an image that is stored with size `stored`.
ImageSize shown_size(const Orientation& orientation, ImageSize stored);

/// Returns the view in coordinates of the image as stored, of size `stored`. Its output is turned
/// in the same way. `flip` does not change.
View stored_view(const Orientation& orientation, const View& shown, ImageSize stored);

/// Converts in the other direction.
View shown_view(const Orientation& orientation, const View& view, ImageSize stored);

/// Writes shown_size(stored.size) x 3 bytes.
void turn(const Orientation& orientation, const Pixels& stored, std::uint8_t* out);

}  // namespace penstock::images
