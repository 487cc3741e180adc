// SPDX-License-Identifier: Apache-2.0

#include "jpeg_samples.hpp"

#include "images/jpeg_files.hpp"

namespace penstock::inline PENSTOCK_ABI::images::test {

std::vector<Bytes> smooth_files(int count) {
  const JpegFile kinds[] = {{}, {.across = 2}, {.across = 2, .down = 2}, {.channels = 1}};
  std::vector<Bytes> files;
  for (int i = 0; i < count; ++i) {
    const JpegFile& kind = kinds[i % 4];
    const int width = 90 + i * 37 % 300, height = 80 + i * 53 % 300;
    files.push_back(jpeg_file(smooth_pixels(width, height, kind.channels), width, height, kind));
  }
  return files;
}

Bytes progressive_file() {
  return jpeg_file(smooth_pixels(200, 160, 3), 200, 160, {.progressive = true});
}
Bytes cmyk_file() {
  return jpeg_file(smooth_pixels(200, 160, 4), 200, 160, {.channels = 4});
}
Bytes file_411() {
  return jpeg_file(smooth_pixels(200, 160, 3), 200, 160, {.across = 4});
}

Bytes damaged(Bytes file) {
  for (std::size_t i = find_marker(file, {0xda}) + 20; i + 2 < file.size(); i += 3)
    file[i] ^= std::byte{0x5a};
  return file;
}

}  // namespace penstock::images::test
