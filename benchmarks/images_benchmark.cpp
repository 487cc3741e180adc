// SPDX-License-Identifier: Apache-2.0

// A JPEG of 500 x 375 pixels (quality 88, 4:2:0, the spectrum of a photograph) on one thread:
// decoded, decoded and cropped to 224 x 224, and resized alone.
// benchmarks/peers/torchvision_images.py measures the same with torchvision, on the file that this
// program writes:
//
//   PENSTOCK_JPEG=photo.jpg images_benchmark && torchvision_images.py photo.jpg

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <penstock/images/crop.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>
#include <random>
#include <vector>

#include "../tests/images/jpeg_files.hpp"

namespace {

using namespace penstock::images;

constexpr ImageSize kSize{375, 500};
constexpr std::size_t kOutputBytes = 224 * 224 * 3;

/// Waves of all lengths and directions, whose height falls with their frequency, and some noise.
std::vector<std::uint8_t> photograph() {
  std::mt19937 random(1);
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  const auto values = static_cast<std::size_t>(kSize.height * kSize.width * 3);
  std::vector<float> sums(values, 128);
  for (int wave = 0; wave < 150; ++wave) {
    const float frequency = std::exp(uniform(std::log(0.004f), std::log(1.5f)));
    const float direction = uniform(0, 6.2832f), phase = uniform(0, 6.2832f);
    const float along_y = frequency * std::sin(direction);
    const float along_x = frequency * std::cos(direction);
    const float height = std::min(25.0f, 1.1f / frequency);
    const float colour[3] = {uniform(0.6f, 1), uniform(0.6f, 1), uniform(0.6f, 1)};
    for (std::size_t i = 0; i < values; i += 3) {
      const auto pixel = static_cast<int>(i / 3);
      const float at = along_y * static_cast<float>(pixel / kSize.width) +
                       along_x * static_cast<float>(pixel % kSize.width);
      const float value = height * std::sin(at + phase);
      for (std::size_t c = 0; c < 3; ++c) sums[i + c] += colour[c] * value;
    }
  }
  std::vector<std::uint8_t> pixels(values);
  for (std::size_t i = 0; i < values; i += 3) {
    const float grain = uniform(-28, 28);
    for (std::size_t c = 0; c < 3; ++c)
      pixels[i + c] = static_cast<std::uint8_t>(std::clamp(sums[i + c] + grain, 0.0f, 255.0f));
  }
  return pixels;
}

const test::Bytes& file() {
  static const test::Bytes bytes = [] {
    const test::Bytes made = test::jpeg_file(photograph(), kSize.width, kSize.height,
                                             {.quality = 88, .across = 2, .down = 2});
    if (const char* path = std::getenv("PENSTOCK_JPEG"))
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(made.data()),
                 static_cast<std::streamsize>(made.size()));
    return made;
  }();
  return bytes;
}

void decode_whole(benchmark::State& state) {
  const test::Bytes& bytes = file();
  JpegDecoder decoder;
  for (auto _ : state) benchmark::DoNotOptimize(decoder.decode(whole(decoder.open(bytes))));
  state.SetLabel(std::to_string(bytes.size()) + " bytes");
}

void decode_and_crop(benchmark::State& state, JpegOptions options) {
  const test::Bytes& bytes = file();
  JpegDecoder decoder(options);
  Resizer resize;
  const RandomResizedCrop crop{.output = {224, 224}};
  std::vector<std::uint8_t> out(kOutputBytes);
  std::uint64_t seed = 0;
  for (auto _ : state) {
    const ImageSize size = decoder.open(bytes);
    resize(decoder.decode(crop(seed++, size)), out);
    benchmark::ClobberMemory();
  }
}

template <class Crop>
void resize_alone(benchmark::State& state, Crop crop) {
  JpegDecoder decoder;
  const Pixels pixels = decoder.decode(whole(decoder.open(file()))).pixels;
  Resizer resize;
  std::vector<std::uint8_t> out(kOutputBytes);
  std::uint64_t seed = 0;
  for (auto _ : state) {
    resize({pixels, crop(seed++, kSize)}, out);
    benchmark::ClobberMemory();
  }
}

BENCHMARK(decode_whole)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(decode_and_crop, usual, JpegOptions{})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(decode_and_crop, not_scaled, JpegOptions{.scaled_dct = false})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(decode_and_crop, fast_dct, JpegOptions{.fast_dct = true})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(resize_alone, random_resized_crop, RandomResizedCrop{})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(resize_alone, resize_center_crop, ResizeCenterCrop{})
    ->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
