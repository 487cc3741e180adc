// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a view needs of an image: which pixels, and at which scale.

#include <penstock/images/view.hpp>

namespace penstock::images {

/// Throws std::invalid_argument if the view is empty or not within an image of this size: its
/// region, and the centre of each output pixel within the region.
void require_within(const View& view, ImageSize image);

/// The smallest n of 1, 2, 4 with which the view of an image of n/8 of the size still has a step of
/// at least 1 in both directions; otherwise 8. libjpeg-turbo has 3, 5, 6 and 7 too, without vector
/// code: they take longer than the whole size.
int smallest_eighths(const View& view);

/// The view in coordinates of an image of `eighths`/8 of the size, which is `scaled` pixels large.
View scaled_view(const View& view, int eighths, ImageSize scaled);

/// All pixels of the view's region that have a weight in its output, and perhaps a few more.
Region needed_region(const View& view);

/// The view in coordinates of a part of the image, which holds needed_region(view).
View within(const View& view, const Region& part);

}  // namespace penstock::images
