// SPDX-License-Identifier: Apache-2.0

// Crops: as torchvision's are distributed, and where nothing is random the same.

#include <penstock/images/crop.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "pictures.hpp"
#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

std::map<std::string, double> numbers_of(const Region& region) {
  return {{"top", region.top},
          {"left", region.left},
          {"height", region.height},
          {"width", region.width},
          {"area", static_cast<double>(region.height) * region.width}};
}

TEST_CASE("RandomResizedCrop: distributed as torchvision's", "[images][crop]") {
  const RandomResizedCrop crop;
  for (const auto& vector : test::vectors().at("distributions")) {
    const ImageSize image = test::size_of(vector.at("image"));
    const int draws = vector.at("draws").get<int>();
    std::map<std::string, std::vector<double>> drawn;
    for (int i = 0; i < draws; ++i)
      for (const auto& [name, value] :
           numbers_of(crop(static_cast<std::uint64_t>(i), image).region))
        drawn[name].push_back(value);
    for (const auto& [name, points] : vector.at("shares").items())
      for (const auto& point : points) {
        const double most = point.at(0).get<double>(), wanted = point.at(1).get<double>();
        const auto count =
            std::ranges::count_if(drawn.at(name), [&](double v) { return v <= most; });
        const double share = static_cast<double>(count) / draws;
        INFO(image.height << " x " << image.width << ": " << name << " <= " << most);
        // Five deviations of the difference of two such shares.
        CHECK(std::abs(share - wanted) <= 5 * std::sqrt(2 * 0.25 / draws));
      }
  }
}

TEST_CASE("RandomResizedCrop: a crop lies in the image, and is the view of itself",
          "[images][crop]") {
  const RandomResizedCrop crop{.output = {12, 34}};
  for (const ImageSize image : {ImageSize{1, 1}, {2, 3}, {1, 65'500}, {65'500, 1}, {375, 500}})
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
      const View view = crop(seed * 0x9e3779b97f4a7c15, image);
      const Region& region = view.region;
      REQUIRE(region.top >= 0);
      REQUIRE(region.left >= 0);
      REQUIRE(region.height > 0);
      REQUIRE(region.width > 0);
      REQUIRE(region.top + region.height <= image.height);
      REQUIRE(region.left + region.width <= image.width);
      REQUIRE(view.origin_y == region.top);
      REQUIRE(view.origin_x == region.left);
      REQUIRE(view.step_y * 12 == Approx(region.height));
      REQUIRE(view.step_x * 34 == Approx(region.width));
      REQUIRE(view.output == ImageSize{12, 34});
      REQUIRE(!view.flip);
    }
}

TEST_CASE("RandomResizedCrop: if nothing fits, the centre", "[images][crop]") {
  RandomResizedCrop crop{.min_area = 1};
  CHECK(crop(1, {20, 90}).region == Region{0, 31, 20, 27});  // 26.67 wide
  CHECK(crop(1, {90, 20}).region == Region{31, 0, 27, 20});
  crop.min_ratio = crop.max_ratio = 1.5;  // no rectangle but by rounding
  CHECK(crop(1, {40, 50}).region == Region{3, 0, 33, 50});
  crop.min_ratio = 0.5;
  CHECK(crop(1, {1, 10'000}).region == Region{0, 4999, 1, 2});
}

TEST_CASE("RandomResizedCrop: never of no pixels", "[images][crop]") {
  for (const auto& [low, high] : {std::pair(3.0, 4.0), {0.1, 0.2}, {1e-6, 1e-6}, {1e6, 1e6}})
    for (const ImageSize image : {ImageSize{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 9}, {9, 1}})
      for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const RandomResizedCrop crop{.min_ratio = low, .max_ratio = high};
        const Region region = crop(seed, image).region;
        REQUIRE(region.height >= 1);
        REQUIRE(region.width >= 1);
        REQUIRE(region.top + region.height <= image.height);
        REQUIRE(region.left + region.width <= image.width);
      }
}

TEST_CASE("RandomResizedCrop: the same for the same seed, another for another", "[images][crop]") {
  const RandomResizedCrop crop;
  int same = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CHECK(crop(seed, {375, 500}).region == crop(seed, {375, 500}).region);
    if (crop(seed, {375, 500}).region == crop(seed + 1, {375, 500}).region) ++same;
  }
  CHECK(same == 0);
}

TEST_CASE("RandomHorizontalFlip: as often as it is to, whatever the crop", "[images][crop]") {
  constexpr int kDraws = 20'000;
  const RandomResizedCrop crop;
  for (const double probability : {0.0, 0.2, 0.5, 1.0}) {
    const RandomHorizontalFlip flip{probability};
    std::array<int, 2> flips{}, all{};  // of small crops and of large ones
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
      const View view = crop(seed, {375, 500});
      const std::size_t large = view.region.height > 250 ? 1 : 0;
      ++all[large];
      if (flip(seed, view).flip) ++flips[large];
    }
    for (const std::size_t large : {0U, 1U})
      CHECK(std::abs(static_cast<double>(flips[large]) / all[large] - probability) <=
            5 * std::sqrt(probability * (1 - probability) / all[large]));
  }
  View view = whole({3, 4});
  view.flip = true;
  CHECK(!RandomHorizontalFlip{1}(7, view).flip);
  CHECK(RandomHorizontalFlip{1}(7, view).region == Region{0, 0, 3, 4});
}

TEST_CASE("ResizeCenterCrop: torchvision's rounding", "[images][crop]") {
  const View view = ResizeCenterCrop{}({375, 500});
  CHECK(view.region == Region{0, 0, 375, 500});
  CHECK(view.step_y == Approx(375 / 256.0));
  CHECK(view.step_x == Approx(500 / 341.0));  // 341.33
  CHECK(view.origin_y == Approx(16 * 375 / 256.0));
  CHECK(view.origin_x == Approx(58 * 500 / 341.0));  // 58.5: to the even number
  CHECK(ResizeCenterCrop{}(123, {375, 500}).origin_x == view.origin_x);
  CHECK(ResizeCenterCrop{}({1, 65'500}).step_x == 1.0 / 256);
}

TEST_CASE("crops of what makes no sense", "[images][crop]") {
  const ImageSize image{40, 30};
  for (const ImageSize bad : {ImageSize{0, 5}, {5, 0}, {-1, 5}}) {
    CHECK_THROWS_AS(RandomResizedCrop{}(1, bad), std::invalid_argument);
    CHECK_THROWS_AS(ResizeCenterCrop{}(bad), std::invalid_argument);
    CHECK_THROWS_AS((RandomResizedCrop{.output = bad}(1, image)), std::invalid_argument);
    CHECK_THROWS_AS((ResizeCenterCrop{.output = bad}(image)), std::invalid_argument);
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [low, high] :
       {std::array{0.0, 1.0}, {-1, 1}, {0.5, 0.4}, {kNone, 1}, {1, kNone}}) {
    CHECK_THROWS_AS((RandomResizedCrop{.min_area = low, .max_area = high}(1, image)),
                    std::invalid_argument);
    CHECK_THROWS_AS((RandomResizedCrop{.min_ratio = low, .max_ratio = high}(1, image)),
                    std::invalid_argument);
  }
  CHECK_THROWS_AS((RandomResizedCrop{.max_area = 1.1}(1, image)), std::invalid_argument);
  CHECK_THROWS_AS((ResizeCenterCrop{.resize = 256, .output = {257, 1}}(image)),
                  std::invalid_argument);
  for (const double bad : {-0.1, 1.1, kNone})
    CHECK_THROWS_AS((RandomHorizontalFlip{bad}(1, View{})), std::invalid_argument);
}

}  // namespace
}  // namespace penstock::images
