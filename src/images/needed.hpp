// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds the pixels and the scale that a view needs of an image.

#include <penstock/images/view.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::images {

/// Throws std::invalid_argument if the view is empty or does not lie in an image of this size. The
/// region must lie in the image, and the centre of each output pixel in the region.
void require_within(const View& view, ImageSize image);

/// Returns the smallest n of 1, 2, 4 for which the view of an image of n/8 of the size has a step
/// of at least 1 in both directions; otherwise 8. libjpeg-turbo also supports 3, 5, 6 and 7, but
/// without vector code, so they take longer than the whole size.
int smallest_eighths(const View& view);

/// Returns the view in coordinates of an image of `eighths`/8 of the size, which has `scaled`
/// pixels.
View scaled_view(const View& view, int eighths, ImageSize scaled);

/// Returns all pixels of the view's region that have a weight in its output, and perhaps a few
/// more.
Region needed_region(const View& view);

/// Returns the view in coordinates of a part of the image that contains needed_region(view).
View within(const View& view, const Region& part);

}  // namespace penstock::images
