// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of penstock::images' headers take for granted. Compiled only.

#include <cstddef>
#include <cstdint>
#include <penstock/file_folder.hpp>
#include <penstock/images/crop.hpp>
#include <penstock/images/decoded_images.hpp>
#include <penstock/images/hardware_decoder.hpp>
#include <penstock/images/image_source.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resize_batch.hpp>
#include <penstock/images/resizer.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/source.hpp>
#include <span>
#include <vector>

namespace {

using Batch = penstock::images::Images<float>;

struct Bare {
  penstock::Sample sample;
  std::span<const std::byte> file;
  std::vector<std::span<const std::byte>> files;
  std::vector<std::int32_t> labels;
  penstock::Sampler sampler{{.samples = 1, .batch_size = 1}};
  penstock::images::RandomResizedCrop crop;
  penstock::images::ImageBatch images;
  cudaStream_t stream;
  float* out;
};

void clean_up() {}

}  // namespace
