// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogitsReturn: the logits of batches on their way back to the host, with what is known of each
// batch, handed to a function on another thread in the order of the batches. A Readback's values
// have one size; the logits of a batch are as many parts of it as they take, each of whole images.
//
//   LogitsReturn answers(network.classes(), 128, print);     // batches of up to 128 images
//   context.run(images, pixels, answers.logits(), stream);
//   answers.push(std::move(notes), stream);                  // logits() may be overwritten
//   answers.drain();

#include <penstock/readback.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "../../model/device_array.hpp"
#include "picture_source.hpp"

namespace resnet::classify {

/// One thread at a time.
class LogitsReturn {
 public:
  /// Called on a thread of the readback's: the logits of rows first, first + 1 ... of a batch; once
  /// at least for each batch, in order.
  using Tell =
      std::function<void(const Notes& notes, std::int64_t first, std::span<const float> logits)>;

  /// Throws std::invalid_argument for a network of more classes than a part has room for.
  LogitsReturn(std::int64_t classes, std::int64_t largest_batch, Tell tell)
      : classes_(classes),
        rows_(part_size / classes),
        tell_(std::move(tell)),
        logits_(parts_of(largest_batch) * part_size),
        readback_(static_cast<std::size_t>(batches_under_way * parts_of(largest_batch))) {}

  /// In device memory: of the largest batch.
  float* logits() const { return logits_.data(); }

  /// Queues; waits for nothing but room in the readback. Throws what telling threw before.
  void push(Notes notes, cudaStream_t stream) {
    const auto shared = std::make_shared<const Notes>(std::move(notes));
    const std::int64_t parts = parts_of(shared->rows);
    for (std::int64_t part = 0; part < parts; ++part)
      readback_.push(
          reinterpret_cast<const Part*>(logits_.data() + part * rows_ * classes_), stream,
          [this, shared, first = part * rows_](const Part& logits) {
            const std::int64_t rows = std::min(rows_, shared->rows - first);
            tell_(*shared, first, {logits.data(), static_cast<std::size_t>(rows * classes_)});
          });
  }

  /// Waits until all is told. Throws as push() does.
  void drain() { readback_.drain(); }

 private:
  static constexpr std::int64_t part_size = 1 << 15;  // floats: 32 images of ImageNet's classes
  static constexpr std::int64_t batches_under_way = 4;
  using Part = std::array<float, part_size>;

  /// One at least: a batch without pictures has something to tell too.
  std::int64_t parts_of(std::int64_t images) const {
    if (rows_ == 0)
      throw std::invalid_argument("a network of " + std::to_string(classes_) +
                                  " classes; there is room for " + std::to_string(part_size));
    return std::max<std::int64_t>((images + rows_ - 1) / rows_, 1);
  }

  const std::int64_t classes_, rows_;  // rows_: of a part
  const Tell tell_;
  const DeviceArray<float> logits_;
  penstock::Readback<Part> readback_;  // last: its thread tells until it ends
};

}  // namespace resnet::classify
