// SPDX-License-Identifier: Apache-2.0

// write_images DIRECTORY COUNT: COUNT pictures of different sizes and contents in the directory,
// each as 00.jpg, 00.png (of the JPEG's pixels) ... . For classify_test.py.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "image_files.hpp"

namespace {

void write(const std::filesystem::path& path, const resnet::classify::test::Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace resnet::classify;
  if (argc != 3) return 2;
  const std::filesystem::path directory = argv[1];
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    const int width = 33 + 7 * (i % 5), height = 60 - 5 * (i % 4);
    const auto pixels = test::smooth_pixels(width, height, 3, i);
    const std::string name = (i < 10 ? "0" : "") + std::to_string(i);
    const test::Bytes jpeg = test::jpeg_file(pixels, width, height);
    const auto decoded = penstock::images::test::decode_all(jpeg);
    write(directory / (name + ".jpg"), jpeg);
    write(directory / (name + ".png"), test::png_file(decoded.pixels, width, height));
  }
}
