// SPDX-License-Identifier: Apache-2.0

// What penstock-pack does with --max-side: in the process, as JPEG files are made here. And with
// URLs, as this program has no penstock::remote.

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <pack/packing.hpp>
#include <pack/recode.hpp>
#include <penstock/images/image_error.hpp>
#include <penstock/packed_file.hpp>
#include <programs/interrupt.hpp>
#include <string>
#include <vector>

#include "../images/jpeg_files.hpp"
#include "support/catch.hpp"
#include "support/temporary_directory.hpp"

namespace pack {
namespace {

using penstock::images::test::Bytes;
using penstock::images::test::decode_all;
using penstock::images::test::find_marker;
using penstock::images::test::jpeg_file;
using penstock::images::test::JpegFile;
using penstock::images::test::smooth_pixels;
using penstock::test::TemporaryDirectory;

Bytes smooth_file(int width, int height, const JpegFile& options = {}) {
  return jpeg_file(smooth_pixels(width, height, options.channels), width, height, options);
}

Bytes recoded(Recoder& recode, const Bytes& file) {
  const auto bytes = recode(file);
  return {bytes.begin(), bytes.end()};
}

TEST_CASE("Recoder: the longer side becomes max_side, the picture stays", "[recode]") {
  Recoder recode({.max_side = 64, .quality = 95});
  struct Case {
    int width, height, new_width, new_height;
  };
  for (const Case& c : {Case{128, 96, 64, 48}, Case{96, 128, 48, 64}, Case{500, 375, 64, 48},
                        Case{65, 64, 64, 63}, Case{1000, 3, 64, 1}}) {
    CAPTURE(c.width, c.height);
    const Bytes file = smooth_file(c.width, c.height, {.quality = 98});
    const auto small = decode_all(recoded(recode, file));
    REQUIRE(small.width == c.new_width);
    REQUIRE(small.height == c.new_height);
    const auto large = decode_all(file);
    int worst = 0;
    for (int y = 0; y < small.height; ++y)
      for (int x = 0; x < small.width; ++x) {
        const auto at = [](const auto& image, int row, int column) {
          return int{image.pixels[static_cast<std::size_t>((row * image.width + column) * 3 + 1)]};
        };
        const int row = (2 * y + 1) * large.height / (2 * small.height);
        const int column = (2 * x + 1) * large.width / (2 * small.width);
        worst = std::max(worst, std::abs(at(small, y, x) - at(large, row, column)));
      }
    CHECK(worst < 16);
  }
}

TEST_CASE("Recoder keeps the bytes of what is small enough", "[recode]") {
  Recoder recode({.max_side = 64});
  for (const auto& file : {smooth_file(64, 64), smooth_file(64, 10), smooth_file(1, 1)})
    CHECK(recode(file).data() == file.data());
  const Bytes file = smooth_file(65, 64);
  CHECK(recode(file).data() != file.data());
}

TEST_CASE("Recoder: a lower quality takes fewer bytes", "[recode]") {
  const Bytes file = jpeg_file(penstock::images::test::noisy_pixels(300, 200, 3), 300, 200);
  Recoder good({.max_side = 128, .quality = 95}), bad({.max_side = 128, .quality = 30});
  CHECK(recoded(bad, file).size() * 2 < recoded(good, file).size());
}

TEST_CASE("Recoder keeps EXIF data, and takes grey, CMYK and progressive files", "[recode]") {
  Recoder recode({.max_side = 64});
  const std::string exif("Exif\0\0MM and what a camera writes", 33);
  const Bytes with_exif = smooth_file(100, 100, {.app1 = {exif.begin(), exif.end()}});
  const Bytes small = recoded(recode, with_exif);
  const std::size_t marker = find_marker(small, {0xe1});
  const std::string kept(reinterpret_cast<const char*>(small.data()) + marker + 4, exif.size());
  CHECK(kept == exif);
  const std::string other = "http: not EXIF";
  CHECK_THROWS(find_marker(
      recoded(recode, smooth_file(100, 100, {.app1 = {other.begin(), other.end()}})), {0xe1}));
  for (const JpegFile& options : {JpegFile{.channels = 1}, JpegFile{.channels = 4, .adobe = true},
                                  JpegFile{.progressive = true}})
    CHECK(decode_all(recoded(recode, smooth_file(100, 80, options))).height == 51);
}

TEST_CASE("Recoder: what is no JPEG is an error, and the next file is none", "[recode]") {
  Recoder recode({.max_side = 64});
  const Bytes foreign(100, std::byte{'x'});
  CHECK_THROWS_AS(recode(foreign), penstock::images::ImageError);
  Bytes cut = smooth_file(200, 200);
  cut.resize(cut.size() / 2);
  CHECK_THROWS_AS(recode(cut), penstock::images::ImageError);
  CHECK(decode_all(recoded(recode, smooth_file(100, 80))).height == 51);
}

TEST_CASE("make_pack with max_side: smaller files, and what cannot be decoded as it is",
          "[recode]") {
  const TemporaryDirectory directory;
  const auto save = [&](const std::string& name, const Bytes& bytes) {
    const auto path = directory / name.c_str();
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  };
  const Bytes foreign(100, std::byte{'x'}), tiny = smooth_file(20, 20);
  for (int i = 0; i < 20; ++i)
    save("images/a/" + std::to_string(10 + i) + ".jpg", smooth_file(100 + i, 80));
  save("images/b/1.jpg", foreign);
  save("images/b/2.jpg", tiny);
  PackOptions options{.sources = {directory / "images"},
                      .output = directory / "small.pack",
                      .threads = 3,
                      .recode = {.max_side = 50, .quality = 80}};
  REQUIRE(make_pack(options) == 0);
  const penstock::PackedFile pack(options.output);
  REQUIRE(pack.size() == 22);
  CHECK(pack.info().note.find("max side 50, quality 80\n") != std::string::npos);
  std::vector<std::byte> scratch;
  const auto read = [&](std::uint64_t i) {
    const auto bytes = pack.read(i, scratch);
    return Bytes(bytes.begin(), bytes.end());
  };
  for (std::uint64_t i = 0; i < 20; ++i) {
    CHECK(decode_all(read(i)).width == 50);
    CHECK(pack.label(i) == 0);
  }
  CHECK(read(20) == foreign);
  CHECK(read(21) == tiny);
  CHECK(pack.label(21) == 1);
}

TEST_CASE("Recoder: an interrupt ends the image that is decoded, and the pack before it",
          "[recode]") {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "images/a");
  const Bytes file = smooth_file(200, 100);
  std::ofstream(directory / "images/a/0.jpg", std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const PackOptions options{.sources = {directory / "images"},
                            .output = directory / "a.pack",
                            .recode = {.max_side = 64}};
  Recoder recode(options.recode);
  penstock::programs::detail::interrupting_signal = SIGINT;
  CHECK_THROWS_AS(recode(file), penstock::images::DecodeStopped);
  CHECK(make_pack(options) == 130);
  penstock::programs::detail::interrupting_signal = 0;
  CHECK(std::filesystem::exists(directory / "a.pack.partial"));
  CHECK(make_pack(options) == 0);
  CHECK(penstock::PackedFile(directory / "a.pack").size() == 1);
}

TEST_CASE("Recoder: raw files have the pixels of the JPEG files", "[recode]") {
  const Bytes file = smooth_file(50, 40);
  const auto all = decode_all(file);
  penstock::images::JpegDecoder decoder;
  const auto pixels_of = [&](const Bytes& bytes) {
    const auto decoded = decoder.decode(penstock::images::whole(decoder.open(bytes)));
    const auto& [data, size, stride] = decoded.pixels;
    REQUIRE(stride == 3 * size.width);
    return std::vector(data, data + stride * size.height);
  };
  Recoder raw({.raw = true});
  const Bytes stored = recoded(raw, file);
  CHECK(stored.size() == all.pixels.size() + std::string("P6\n50 40\n255\n").size());
  CHECK(pixels_of(stored) == all.pixels);
  CHECK(recoded(raw, stored) == stored);

  Recoder small_raw({.max_side = 25, .raw = true}), small({.max_side = 25, .quality = 100});
  const auto expected = decode_all(recoded(small, file));
  const auto pixels = pixels_of(recoded(small_raw, file));
  REQUIRE(pixels.size() == expected.pixels.size());
  int worst = 0;
  for (std::size_t i = 0; i < pixels.size(); ++i)
    worst = std::max(worst, std::abs(pixels[i] - expected.pixels[i]));
  CHECK(worst <= 6);  // what JPEG loses
  CHECK_THROWS_AS(recoded(raw, Bytes(100)), penstock::images::ImageError);
}

// This program has the sources of penstock-pack without penstock::remote.
TEST_CASE("Source: a URL needs penstock::remote", "[pack]") {
  const auto error = [](const char* path, const CacheToFill& cache) {
    try {
      Source({path}, {.cache = cache});
    } catch (const UsageError& usage) {
      return std::string(usage.what());
    }
    return std::string();
  };
  for (const char* const url : {"s3://bucket/a.pack", "gs://b/c/", "https://host/a.tar"})
    CHECK(error(url, {}) ==
          std::string(url) + ": this penstock-pack was built without penstock::remote");
  CHECK(error("a.pack", {.directory = "cache"}) == "--fill-cache is for URLs, and a.pack is none");
}

}  // namespace
}  // namespace pack
