// SPDX-License-Identifier: Apache-2.0

// images: JPEG files in a folder, in tar shards or in a packed file, on this machine or at a
// server, as batches of normalised crops in device memory. The same file is compiled as C++ over
// the emulated runtime and, by way of images.cu, as CUDA C++. Exit codes: 0 done, 1 an exception, 2
// wrong arguments.

#include "../common/image_files.hpp"

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <penstock/images/crop.hpp>
#include <penstock/images/image_source.hpp>
#include <penstock/penstock.hpp>
#include <stdexcept>
#include <variant>
#include <vector>

namespace images = penstock::images;

/// What the loop gets: 224 x 224 pixels of three floats.
using Crops = images::Images<float>;

template <class Store>
void run(const Store& files) {
  const images::OutputFormat format{.size = {224, 224},
                                    .mean = {0.485f, 0.456f, 0.406f},
                                    .standard_deviation = {0.229f, 0.224f, 0.225f}};
  penstock::Prefetcher<Crops, images::DecodedImages> prefetcher{
      images::decoded_images_layout(64, format.size),  // batch size
      {.samples = files.size(), .shuffle = true, .seed = 1},
      images::image_source(files, images::RandomResizedCrop{.output = format.size}),
      images::resize_images<float>(format),
      {.on_failure = penstock::FailurePolicy::replace(10),
       .read_ahead = penstock::read_ahead(files, 4)}};

  penstock::Stream stream;
  std::int64_t count = 0;
  while (const auto batch = prefetcher.next(stream.get()))
    count += batch->pixels.extent(0);  // your kernels on `stream`, on batch->pixels and labels
  stream.synchronize();

  for (const penstock::Failure& failure : prefetcher.failures()) std::cout << failure.what << '\n';
  std::cout << count << " images\n" << prefetcher.stats() << '\n';
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "images FOLDER, images SHARD.tar..., images FILE.pack, or their URLs\n");
    return 2;
  }
  try {
    const std::vector<std::filesystem::path> paths(argv + 1, argv + argc);
    std::visit([](const auto& files) { run(files); }, examples::open_image_files(paths));
    if (!std::cout.flush()) throw std::runtime_error("the standard output cannot be written");
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "images: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "images: %s\n", error.what());
    return 1;
  }
}
