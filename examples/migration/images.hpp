// SPDX-License-Identifier: Apache-2.0
#pragma once

// What all five programs share and none is about: which images there are, how one is loaded, what
// becomes of its histogram, and the command line:
//
//   PROGRAM FOLDER [IMAGES]
//
// FOLDER holds JPEG or PPM files of one size, in a folder for each class (make_images writes such).
// With more IMAGES than files it begins again. The program prints images/s, without the first tenth
// of them, and a checksum of all histograms. Exit codes: 0 done, 1 an error, 2 wrong arguments.

#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <nvtx3/nvtx3.hpp>
#include <penstock/file_folder.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "pixels.hpp"

namespace migration {

/// Loads images, JPEG or PPM. One for each thread.
class Loader {
 public:
  explicit Loader(const penstock::FileFolder& files) : files_(&files) {}

  /// The shape of one image: that of the first file. Throws for one of more than 16 million pixels:
  /// the kernels count the values of a batch in 31 bits.
  Shape shape() {
    const penstock::images::ImageSize size = open(0);
    if (std::int64_t{size.height} * size.width > (1 << 24))
      throw std::runtime_error(files_->name(0) + ": it has more than 16 million pixels");
    return {1, size.height, size.width};
  }

  /// Writes height x width x 3 bytes. Throws if the file cannot be read or decoded, or is of
  /// another size.
  void operator()(std::uint64_t index, std::uint8_t* pixels, Shape shape) {
    const nvtx3::scoped_range range{"load"};  // profilers show it
    index %= files_->size();
    const penstock::images::ImageSize size = open(index);
    if (size != penstock::images::ImageSize{shape.height, shape.width})
      throw std::runtime_error(files_->name(index) + ": it has not the size of the first image");
    try {
      const penstock::images::Pixels image = decoder_.decode(penstock::images::whole(size)).pixels;
      const auto row = static_cast<std::size_t>(shape.width) * 3;
      for (int y = 0; y < shape.height; ++y)
        std::memcpy(pixels + static_cast<std::size_t>(y) * row, image.data + y * image.stride, row);
    } catch (const penstock::images::ImageError& error) {
      throw std::runtime_error(files_->name(index) + ": " + error.what());
    }
  }

 private:
  penstock::images::ImageSize open(std::uint64_t index) {
    const std::span<const std::byte> file = files_->read(index, file_);
    try {
      return decoder_.open(file);
    } catch (const penstock::images::ImageError& error) {
      throw std::runtime_error(files_->name(index) + ": " + error.what());
    }
  }

  const penstock::FileFolder* files_;
  penstock::images::JpegDecoder decoder_;
  std::vector<std::byte> file_;
};

/// Takes the histogram of each image, in any order, and measures the rate.
class Results {
 public:
  explicit Results(std::uint64_t images) : images_(images) {}

  std::uint64_t images() const { return images_; }

  /// `histogram`: kBins counts. One thread at a time.
  void add(std::uint64_t image, const std::uint32_t* histogram) {
    std::uint64_t hash = 0xcbf29ce484222325 ^ image;  // FNV-1a, a count at a time
    for (int i = 0; i < kBins; ++i) hash = (hash ^ histogram[i]) * 0x100000001b3;
    checksum_ += hash;
    end_ = Clock::now();
    if (++done_ == images_ / 10) begin_ = end_, first_ = done_;
  }

  void print() const {
    const std::chrono::duration<double> seconds = end_ - begin_;
    std::printf("images: %" PRIu64 "\nimages/s: %.1f\nchecksum: %016" PRIx64 "\n", done_,
                static_cast<double>(done_ - first_) / seconds.count(), checksum_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t images_, done_ = 0, first_ = 0, checksum_ = 0;
  Clock::time_point begin_ = Clock::now(), end_ = begin_;
};

/// The number that a word is, all of it. Throws std::runtime_error for another.
inline std::uint64_t images_of(const std::string& word) {
  constexpr std::uint64_t most = 10'000'000;
  std::uint64_t images = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, images);
  if (error != std::errc() || stop != end || images < 1 || images > most)
    throw std::runtime_error(word + ": IMAGES is a number from 1 to " + std::to_string(most));
  return images;
}

/// main(): reads the arguments, calls `process`, prints its results.
inline int run(int argc, char** argv, void (*process)(const penstock::FileFolder&, Results&)) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "%s FOLDER [IMAGES]\n", argv[0]);
    return 2;
  }
  try {
    const penstock::FileFolder files(argv[1]);
    const std::uint64_t images = argc == 3 ? images_of(argv[2]) : files.size();
    Results results(images);
    process(files, results);
    results.print();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  return 0;
}

}  // namespace migration
