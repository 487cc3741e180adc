// SPDX-License-Identifier: Apache-2.0

// What images::image_source is given: a store that lives on, and a function that makes views.

#include <cstddef>
#include <cstdint>
#include <penstock/images/crop.hpp>
#include <penstock/images/image_source.hpp>
#include <span>
#include <string>
#include <vector>

#ifndef PENSTOCK_TEST_CASE
#define PENSTOCK_TEST_CASE 0
#endif

#if PENSTOCK_TEST_CASE == 3
#define PENSTOCK_TEST_CONST
#else
#define PENSTOCK_TEST_CONST const
#endif

struct Files {
  std::span<const std::byte> read(std::uint64_t, std::vector<std::byte>& memory) const {
    return memory;
  }
#if PENSTOCK_TEST_CASE != 2
  std::string name(std::uint64_t) const {
    return "name";
  }
#endif
  int label(std::uint64_t) PENSTOCK_TEST_CONST {
    return 1;
  }
};

namespace images = penstock::images;

penstock::AnySource<images::DecodedImages> source(const Files& files) {
#if PENSTOCK_TEST_CASE == 1
  return images::image_source(Files(), images::RandomResizedCrop{});
#elif PENSTOCK_TEST_CASE == 4
  return images::image_source(files, images::RandomHorizontalFlip{});
#else
  return images::image_source(files, images::RandomResizedCrop{});
#endif
}
