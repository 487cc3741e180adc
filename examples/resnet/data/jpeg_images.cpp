// SPDX-License-Identifier: Apache-2.0

#include "jpeg_images.hpp"

#include <penstock/images/crop.hpp>
#include <penstock/source.hpp>

namespace resnet {

namespace images = penstock::images;

images::View view_of(const Augmentation& augmentation, std::uint64_t seed, images::ImageSize size) {
  const images::ImageSize output{augmentation.size, augmentation.size};
  if (!augmentation.random)
    return images::ResizeCenterCrop{.resize = augmentation.size * 256 / 224,
                                    .output = output}(size);
  const images::RandomResizedCrop crop{.output = output};
  return images::RandomHorizontalFlip{}(seed, crop(seed, size));
}

JpegImages::JpegImages(const ImageStore& store, const Augmentation& augmentation)
    : store_(&store),
      augmentation_(augmentation),
      small_(static_cast<std::size_t>(augmentation.size) *
             static_cast<std::size_t>(augmentation.size) * 3) {}

void JpegImages::fill(std::uint64_t epoch, std::span<const std::uint64_t> samples, float* pixels,
                      std::int32_t* labels) {
  const std::size_t plane = small_.size() / 3;
  for (const std::uint64_t sample : samples) {
    decode(epoch, sample);
    *labels++ = store_->label(sample);
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t i = 0; i < plane; ++i)
        *pixels++ = (static_cast<float>(small_[3 * i + c]) / 255 - imagenet_mean[c]) /
                    imagenet_deviation[c];
  }
}

/// The whole image, whatever the view needs of it.
void JpegImages::decode(std::uint64_t epoch, std::uint64_t sample) try {
  const images::ImageSize size = decoder_.open(store_->read(sample, file_));
  const std::uint64_t seed = penstock::sample_seed(augmentation_.seed, epoch, sample);
  const images::View whole{.region = {0, 0, size.height, size.width}, .output = size};
  const images::Decoded image = decoder_.decode(whole);
  resize_({image.pixels, view_of(augmentation_, seed, size)}, small_);
} catch (const images::ImageError& error) {
  throw images::ImageError(store_->name(sample) + ": " + error.what());
}

}  // namespace resnet
