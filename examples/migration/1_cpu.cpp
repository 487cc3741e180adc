// SPDX-License-Identifier: Apache-2.0

// Step 1: a plain loop on the CPU: load an image, blur it, count its values. It says which stage
// takes how long: that is the profile that step 2 is made by.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "images.hpp"
#include "pixels.hpp"

namespace {

using namespace migration;
using Clock = std::chrono::steady_clock;

void blur_rows(const std::uint8_t* pixels, std::uint16_t* rows, Shape shape) {
  for (int row = 0; row < shape.height; ++row)
    for (int column = 0; column < shape.width; ++column)
      for (int channel = 0; channel < 3; ++channel)
        *rows++ = blurred_in_row(pixels++, column, shape);
}

void blur_columns(const std::uint16_t* rows, std::uint8_t* blurred, Shape shape) {
  for (int row = 0; row < shape.height; ++row)
    for (int column = 0; column < shape.width; ++column)
      for (int channel = 0; channel < 3; ++channel)
        *blurred++ = blurred_in_column(rows++, row, shape);
}

void count_values(const std::uint8_t* blurred, std::uint32_t* counts, Shape shape) {
  for (int i = 0; i < shape.values(); ++i) ++counts[i % 3 * 256 + blurred[i]];
}

void process(const penstock::FileFolder& files, Results& results) {
  Loader load(files);
  const Shape shape = load.shape();
  const auto values = static_cast<std::size_t>(shape.values());
  std::vector<std::uint8_t> pixels(values), blurred(values);
  std::vector<std::uint16_t> rows(values);
  std::vector<std::uint32_t> counts(kBins);
  std::chrono::duration<double, std::milli> loading{}, blurring{}, counting{};

  for (std::uint64_t i = 0; i < results.images(); ++i) {
    const Clock::time_point begin = Clock::now();
    load(i, pixels.data(), shape);
    const Clock::time_point loaded = Clock::now();
    blur_rows(pixels.data(), rows.data(), shape);
    blur_columns(rows.data(), blurred.data(), shape);
    const Clock::time_point blurred_at = Clock::now();
    counts.assign(kBins, 0);
    count_values(blurred.data(), counts.data(), shape);
    counting += Clock::now() - blurred_at;
    blurring += blurred_at - loaded;
    loading += loaded - begin;
    results.add(i, counts.data());
  }
  const auto images = static_cast<double>(results.images());
  std::printf("milliseconds an image: load %.2f, blur %.2f, histogram %.2f\n",
              loading.count() / images, blurring.count() / images, counting.count() / images);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, process);
}
