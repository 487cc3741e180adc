// SPDX-License-Identifier: Apache-2.0
#pragma once

// TrainingData: what is trained on: CIFAR-10's records, the JPEG files that --images names, or
// clips of the video files that --videos names.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <penstock/record_file.hpp>
#include <span>
#include <string>
#include <utility>

#include "../data/clip_set.hpp"
#include "../data/image_store.hpp"
#include "../data/input.hpp"

namespace resnet {

/// Makes whole float images on the CPU, as T0 to T12 load them. Copies are independent: each worker
/// has its own.
struct FloatSource {
  /// `pixels`: samples x 3 x size x size; `labels`: samples. Throws what is wrong with a sample.
  std::function<void(std::uint64_t epoch, std::span<const std::uint64_t> samples, float* pixels,
                     std::int32_t* labels)>
      fill;

  void operator()(const penstock::Ticket& ticket, Images& batch) const {
    fill(ticket.epoch, ticket.samples, batch.pixels.data_handle(), batch.labels.data_handle());
  }
};

class TrainingData {
 public:
  explicit TrainingData(penstock::RecordFile records) : records_(std::move(records)) {}
  explicit TrainingData(ImageStore images) : images_(std::move(images)) {}
  explicit TrainingData(ClipSet clips) : clips_(std::move(clips)) {}

  std::uint64_t size() const;
  std::int32_t classes() const;
  /// A clip has several images, its frames.
  std::int64_t images_per_sample() const { return clips_ ? clips_->frames : 1; }
  bool has_images() const { return images_.has_value(); }
  /// Tells data sets of the same size apart: a hash of parts of up to a thousand samples.
  std::string fingerprint() const;

  /// They throw std::invalid_argument if the data are of the other kind.
  const penstock::RecordFile& records() const;
  const ImageStore& images() const;
  const ClipSet& clips() const;

  /// The data outlive it. Of clips it is empty.
  FloatSource float_images(const Augmentation& augmentation) const;

 private:
  std::optional<penstock::RecordFile> records_;
  std::optional<ImageStore> images_;
  std::optional<ClipSet> clips_;
};

}  // namespace resnet
