// SPDX-License-Identifier: Apache-2.0
#pragma once

// JpegImages: float images of JPEG files, on a worker, as a first version of a loader makes them:
// it decodes the whole file, resizes the crop and normalises. T0 to T12 do so with --images; T15
// shows what is better.
//
//   const JpegImages images(store, {.seed = 7, .size = 224});
//   images.fill(epoch, samples, pixels, labels);

#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/images/image_error.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>
#include <penstock/images/view.hpp>
#include <span>
#include <vector>

#include "image_store.hpp"
#include "input.hpp"

namespace resnet {

/// Mean and standard deviation of ImageNet's channels, of 0 ... 1.
inline constexpr std::array<float, 3> imagenet_mean = {0.485f, 0.456f, 0.406f};
inline constexpr std::array<float, 3> imagenet_deviation = {0.229f, 0.224f, 0.225f};

/// The view of a sample: a random crop, half of them mirrored; to evaluate, the centre of the image
/// whose shorter side is 256/224 of `size`.
/// `seed`: penstock::sample_seed of the run's seed, the epoch and the sample.
penstock::images::View view_of(const Augmentation& augmentation, std::uint64_t seed,
                               penstock::images::ImageSize size);

/// One thread at a time: each worker has a copy, with memory of its own. The store outlives it.
class JpegImages {
 public:
  JpegImages(const ImageStore& store, const Augmentation& augmentation);
  JpegImages(const JpegImages& other) : JpegImages(*other.store_, other.augmentation_) {}
  JpegImages& operator=(const JpegImages&) = delete;

  /// `pixels`: samples x 3 x size x size; `labels`: samples. Throws
  /// penstock::images::ImageError and penstock::StoreError, which name the file.
  void fill(std::uint64_t epoch, std::span<const std::uint64_t> samples, float* pixels,
            std::int32_t* labels);

 private:
  void decode(std::uint64_t epoch, std::uint64_t sample);

  const ImageStore* store_;
  Augmentation augmentation_;
  penstock::images::JpegDecoder decoder_;
  penstock::images::Resizer resize_;
  std::vector<std::byte> file_;
  std::vector<std::uint8_t> small_;  // size x size x 3
};

}  // namespace resnet
