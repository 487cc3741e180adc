// SPDX-License-Identifier: Apache-2.0

// Once it has seen the largest image, a worker's decoder, crop and resizer take no memory: neither
// by operator new nor, in libjpeg, by malloc.

#include <penstock/images/crop.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>

#include <cstdlib>

#include "jpeg_files.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

namespace {
thread_local std::uint64_t mallocs = 0;
}  // namespace

// In place of the C library's, for libjpeg too. The sanitizers have their own.
#if !PENSTOCK_TEST_SANITIZED && defined(__GLIBC__)
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* malloc(std::size_t bytes) {
  ++mallocs;
  return __libc_malloc(bytes);
}
#endif

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

struct Images {
  std::vector<test::Bytes> files;

  /// All kinds, the large ones last.
  Images() {
    for (const int width : {40, 90, 300})
      for (const bool progressive : {false, true})
        for (const int channels : {1, 3, 4}) {
          test::JpegFile options{.channels = channels, .progressive = progressive};
          options.across = options.down = channels == 1 ? 1 : 2;
          options.app1 = {'E', 'x', 'i', 'f',  0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                          0,   1,   1,   0x12, 0, 3, 0,   0,   0, 1,  0, 6, 0, 0};
          const auto pixels = test::smooth_pixels(width, 200, channels);
          files.push_back(test::jpeg_file(pixels, width, 200, options));
        }
  }
};

TEST_CASE("no memory is taken once the largest image was seen", "[images][allocations]") {
  const Images images;
  const bool turned = GENERATE(false, true);
  JpegDecoder decoder({.apply_orientation = turned});
  Resizer resize;
  const RandomResizedCrop crop{.output = {64, 48}};
  const RandomHorizontalFlip flip;
  std::vector<std::uint8_t> out(64 * 48 * 3);
  const auto make_all = [&](std::uint64_t seed) {
    for (const auto& file : images.files) {
      const ImageSize size = decoder.open(file);
      resize(decoder.decode(flip(seed, crop(seed, size))), out);
    }
  };
  for (const auto& file : images.files) {
    const ImageSize size = decoder.open(file);
    const Decoded all = decoder.decode(whole(size));
    View largest = whole(size);
    largest.output = crop.output;
    largest.step_y = static_cast<double>(size.height) / crop.output.height;
    largest.step_x = static_cast<double>(size.width) / crop.output.width;
    resize({all.pixels, largest}, out);  // decode(largest) would scale it down
  }
  decoder.open(images.files[0]);  // puts what the last one needed into one block
  const std::uint64_t news = penstock::test::allocations_of_this_thread(), libjpegs = mallocs;
  for (std::uint64_t seed = 0; seed < 10; ++seed) make_all(seed);
  const std::uint64_t libjpegs_after = mallocs;
  CHECK(penstock::test::allocations_of_this_thread() == news);
  CHECK(libjpegs_after == libjpegs);
#if !PENSTOCK_TEST_SANITIZED && defined(__GLIBC__)
  test::decode_all(images.files[0]);
  CHECK(mallocs > libjpegs_after);  // libjpeg's are seen
#endif
}

}  // namespace
}  // namespace penstock::images
