// SPDX-License-Identifier: Apache-2.0

// Images of the training ladder made on one thread: ImageWriter, which resizes each of a record's
// rows once, against asking normalised_pixel for each value. The same values, bit for bit. A run is
// one image, crop and flip changing from image to image.

#include "../examples/resnet/data/image_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../examples/data/cifar10.hpp"
#include "side_by_side.hpp"

namespace {

struct PixelByPixel {
  std::int32_t size;

  void operator()(const std::uint8_t* record, const resnet::View& view, float* pixels) const {
    for (std::int32_t c = 0; c < cifar10::channels; ++c)
      for (std::int32_t y = 0; y < size; ++y)
        for (std::int32_t x = 0; x < size; ++x)
          *pixels++ = resnet::normalised_pixel(record, view, size, c, y, x);
  }
};

/// Into a batch's memory, as a rung does: more than stays in the caches at 224.
template <class Write>
void write_images(benchmark::State& state, std::int32_t size) {
  constexpr std::size_t kBatch = 32;
  const Write write{size};
  std::vector<std::uint8_t> record(cifar10::record_bytes);
  for (std::size_t i = 0; i < record.size(); ++i) record[i] = static_cast<std::uint8_t>(i * 37);
  const auto side = static_cast<std::size_t>(size);
  const std::size_t image = cifar10::channels * side * side;
  std::vector<float> batch(kBatch * image);
  std::uint64_t sample = 0;
  for (auto _ : state) {
    write(record.data(), resnet::random_view(1, 0, sample), &batch[sample % kBatch * image]);
    benchmark::ClobberMemory();
    ++sample;
  }
  state.SetItemsProcessed(state.iterations());  // images
}

void add(const std::string& name, std::int32_t size) {
  benchmark::RegisterBenchmark((name + "/ours").c_str(), write_images<resnet::ImageWriter>, size)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((name + "/normalised_pixel").c_str(), write_images<PixelByPixel>,
                               size)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("image_of_32x32", 32);
  add("image_of_224x224", 224);
  return penstock::benchmarks::run_side_by_side(argc, argv);
}
