// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogitsReadback: the logits of a batch on their way to the run's answers, told by a thread of
// their own (Readback). A Readback's values have one size; the logits of a batch are as many parts
// of it as they take, each of whole images.
//
//   LogitsReadback answers(run, 8);                    // 8 batches under way
//   context.run(images, pixels, answers.logits(), stream);
//   answers.push(request, stream);                     // logits() may be overwritten in the stream
//   answers.drain();

#include <algorithm>
#include <array>
#include <cstdint>
#include <penstock/readback.hpp>
#include <stdexcept>

#include "run.hpp"

namespace resnet::rungs {

/// One thread at a time.
class LogitsReadback {
 public:
  /// `run` outlives this. Throws std::invalid_argument for a network of more classes than a part
  /// has room for.
  LogitsReadback(Run& run, std::size_t batches)
      : run_(run),
        classes_(run.network().classes()),
        images_(part_size / classes_),
        logits_(parts_of(run.batch()) * part_size),
        readback_(batches * static_cast<std::size_t>(parts_of(run.batch()))) {}

  /// In device memory: of the largest batch.
  float* logits() const { return logits_.data(); }

  /// Queues; waits for nothing but room in the readback. Throws what was wrong with answers before.
  void push(std::uint64_t request, cudaStream_t stream) {
    const auto number = static_cast<std::uint32_t>(request);
    const std::int64_t parts = parts_of(run_.requests().size(request));
    for (std::int64_t part = 0; part < parts; ++part)
      readback_.push(reinterpret_cast<const Part*>(logits_.data() + part * images_ * classes_),
                     stream,
                     [this, number, index = static_cast<std::uint32_t>(part)](const Part& logits) {
                       tell(number, index, logits);
                     });
  }

  /// Waits until all is told.
  void drain() { readback_.drain(); }

 private:
  static constexpr std::int64_t part_size = 1280;  // floats: a batch of 128 with ten classes
  struct Part {
    std::array<float, part_size> logits;
  };

  std::int64_t parts_of(std::int64_t images) const {
    if (images_ == 0)
      throw std::invalid_argument("more than " + std::to_string(part_size) + " classes");
    return (images + images_ - 1) / images_;
  }

  void tell(std::uint64_t request, std::int64_t part, const Part& logits) {
    const std::int64_t first = part * images_;
    const std::int64_t images = std::min(images_, run_.requests().size(request) - first);
    run_.answers().tell(request, first,
                        {logits.logits.data(), static_cast<std::size_t>(images * classes_)});
  }

  Run& run_;
  const std::int64_t classes_, images_;  // images_: of a part
  const DeviceArray<float> logits_;
  penstock::Readback<Part> readback_;  // last: its thread tells until it ends
};

}  // namespace resnet::rungs
