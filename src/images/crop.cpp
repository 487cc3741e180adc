// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <penstock/images/crop.hpp>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

/// Draws random numbers for one sample. Different values of `purpose` give independent numbers.
class Draws {
 public:
  Draws(std::uint64_t sample_seed, std::uint64_t purpose)
      : key_(detail::mix64(sample_seed ^ purpose)) {}

  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(detail::mix64(key_ + drawn_++) >> 11) * 0x1p-53; }
  /// Uniform in [low, high).
  double between(double low, double high) { return low + (high - low) * unit(); }
  /// Uniform in 0 ... count - 1.
  std::int32_t below(std::int32_t count) { return static_cast<std::int32_t>(count * unit()); }

 private:
  std::uint64_t key_, drawn_ = 0;
};

constexpr std::uint64_t kCrop = 0x63726f70, kFlip = 0x666c6970;  // "crop", "flip"

void require(bool good, const char* what) {
  if (!good) throw std::invalid_argument(what);
}

void require_size(ImageSize image) {
  require(image.height > 0 && image.width > 0, "a crop of an image without pixels");
}

/// Rounds a half to the even number, like Python's round.
double rounded(double value) {
  return std::nearbyint(value);
}

/// Returns the largest centred rectangle whose ratio is in the range.
Region centre(ImageSize image, double min_ratio, double max_ratio) {
  Region region{.height = image.height, .width = image.width};
  const double ratio = static_cast<double>(image.width) / image.height;
  // torchvision may round a side to 0; this does not.
  const auto side = [](double length) {
    return std::max(1, static_cast<std::int32_t>(rounded(length)));
  };
  if (ratio < min_ratio)
    region.height = side(image.width / min_ratio);
  else if (ratio > max_ratio)
    region.width = side(image.height * max_ratio);
  region.top = (image.height - region.height) / 2;
  region.left = (image.width - region.width) / 2;
  return region;
}

Region random_region(const RandomResizedCrop& crop, Draws draws, ImageSize image) {
  const double pixels = static_cast<double>(image.height) * image.width;
  const double min_log = std::log(crop.min_ratio), max_log = std::log(crop.max_ratio);
  for (int tries = 0; tries < 10; ++tries) {
    const double area = pixels * draws.between(crop.min_area, crop.max_area);
    const double ratio = std::exp(draws.between(min_log, max_log));
    const double width = rounded(std::sqrt(area * ratio));
    const double height = rounded(std::sqrt(area / ratio));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    Region region{.height = static_cast<std::int32_t>(height),
                  .width = static_cast<std::int32_t>(width)};
    region.top = draws.below(image.height - region.height + 1);
    region.left = draws.below(image.width - region.width + 1);
    return region;
  }
  return centre(image, crop.min_ratio, crop.max_ratio);
}

}  // namespace

View RandomResizedCrop::operator()(std::uint64_t sample_seed, ImageSize image) const {
  require_size(image);
  require(output.height > 0 && output.width > 0, "RandomResizedCrop: output has no pixels");
  require(min_area > 0 && min_area <= max_area && max_area <= 1,
          "RandomResizedCrop: it must be that 0 < min_area <= max_area <= 1");
  require(min_ratio > 0 && min_ratio <= max_ratio && std::isfinite(max_ratio),
          "RandomResizedCrop: it must be that 0 < min_ratio <= max_ratio");
  const Region region = random_region(*this, Draws(sample_seed, kCrop), image);
  return {.region = region,
          .origin_y = static_cast<double>(region.top),
          .origin_x = static_cast<double>(region.left),
          .step_y = static_cast<double>(region.height) / output.height,
          .step_x = static_cast<double>(region.width) / output.width,
          .output = output};
}

View ResizeCenterCrop::operator()(ImageSize image) const {
  require_size(image);
  require(output.height > 0 && output.width > 0, "ResizeCenterCrop: output has no pixels");
  require(output.height <= resize && output.width <= resize,
          "ResizeCenterCrop: output must not be larger than resize");
  const std::int32_t shorter = std::min(image.height, image.width);
  const auto resized = [&](std::int32_t side) { return std::int64_t{resize} * side / shorter; };
  const auto height = static_cast<double>(resized(image.height));
  const auto width = static_cast<double>(resized(image.width));
  View view{.region = {0, 0, image.height, image.width},
            .step_y = image.height / height,
            .step_x = image.width / width,
            .output = output};
  view.origin_y = rounded((height - output.height) / 2) * view.step_y;
  view.origin_x = rounded((width - output.width) / 2) * view.step_x;
  return view;
}

View RandomHorizontalFlip::operator()(std::uint64_t sample_seed, View view) const {
  require(probability >= 0 && probability <= 1,
          "RandomHorizontalFlip: probability must be from 0 to 1");
  if (Draws(sample_seed, kFlip).unit() < probability) view.flip = !view.flip;
  return view;
}

}  // namespace penstock::images
