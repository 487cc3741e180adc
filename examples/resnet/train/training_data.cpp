// SPDX-License-Identifier: Apache-2.0

#include "training_data.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "../../common/hash.hpp"
#include "../../data/cifar10.hpp"
#include "../data/jpeg_images.hpp"

namespace resnet {

std::uint64_t TrainingData::size() const {
  if (clips_) return clips_->clips();
  return records_ ? records_->size() : images_->size();
}

/// Of records all their bytes; of images the names and labels, and of one in a hundred the bytes;
/// of videos the names and labels.
std::string TrainingData::fingerprint() const {
  constexpr std::uint64_t kLookedAt = 1000;
  const std::uint64_t stride = std::max<std::uint64_t>(1, size() / kLookedAt);
  examples::Hash hash;
  std::vector<std::byte> scratch;
  for (std::uint64_t i = 0; i < size(); i += stride) {
    if (records_) {
      hash.add(records_->read(i, scratch));
      continue;
    }
    if (clips_) {
      const std::uint64_t file = i / static_cast<std::uint64_t>(clips_->clips_per_file);
      hash.add(clips_->files[file].filename().string());
      hash.add(std::to_string(clips_->labels[file]));
      continue;
    }
    hash.add(images_->name(i));
    hash.add(std::to_string(images_->label(i)));
    if (i / stride % 100 == 0) hash.add(images_->read(i, scratch));
  }
  return hash.text();
}

std::int32_t TrainingData::classes() const {
  if (clips_) return clips_->classes;
  return records_ ? std::int32_t{cifar10::classes} : images_->classes();
}

const penstock::RecordFile& TrainingData::records() const {
  if (!records_)
    throw std::invalid_argument(
        "--images: this program reads records alone; T15 and T16 read images");
  return *records_;
}
const ImageStore& TrainingData::images() const {
  if (!images_)
    throw std::invalid_argument("this program reads JPEG files: name them with --images");
  return *images_;
}

const ClipSet& TrainingData::clips() const {
  if (!clips_)
    throw std::invalid_argument("this program reads video files: name them with --videos");
  return *clips_;
}

FloatSource TrainingData::float_images(const Augmentation& augmentation) const {
  if (clips_) return {};
  if (records_) {
    return {[source = ImageSource{&*records_, augmentation}](auto epoch, auto samples,
                                                             float* pixels, std::int32_t* labels) {
      source.fill(epoch, samples, pixels, labels);
    }};
  }
  return {[source = JpegImages(*images_, augmentation)](auto epoch, auto samples, float* pixels,
                                                        std::int32_t* labels) mutable {
    source.fill(epoch, samples, pixels, labels);
  }};
}

}  // namespace resnet
