// SPDX-License-Identifier: Apache-2.0

// A program of somebody else's that decodes images: here one that is none, and resizes another.

#include <algorithm>
#include <cstdio>
#include <penstock/images/crop.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>
#include <vector>

namespace images = penstock::images;

int main() {
  images::JpegDecoder decoder;
  const std::vector<std::byte> file(10);
  bool refused = false;
  try {
    decoder.open(file);
  } catch (const images::ImageError& error) {
    refused = true;
    std::printf("%s\n", error.what());
  }

  const std::vector<std::uint8_t> grey(375 * 500 * 3, 128);
  std::vector<std::uint8_t> small(224 * 224 * 3);
  images::Resizer resize;
  resize({{grey.data(), {375, 500}, 1500}, images::RandomResizedCrop{}(1, {375, 500})}, small);
  const bool same = std::all_of(small.begin(), small.end(), [](int value) { return value == 128; });
  return refused && same ? 0 : 1;
}
