// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogitsReadback: the logits of a batch on their way to the run's answers, told by a thread of
// their own (Readback). A Readback's values have one size: there is one for a few images of ten
// classes and one for a hundred of a thousand, and the smaller one that a batch fits into is taken.
// A batch that fits into none goes in parts, each of whole images.
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
#include <variant>

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
        part_size_(run.logits() <= Small::size ? Small::size : Large::size),
        images_(part_size_ / classes_),
        logits_(parts_of(run.batch()) * part_size_) {
    const std::size_t parts = batches * static_cast<std::size_t>(parts_of(run.batch()));
    if (part_size_ == Small::size)
      readback_.emplace<penstock::Readback<Small>>(parts);
    else
      readback_.emplace<penstock::Readback<Large>>(parts);
  }

  /// In device memory: of the largest batch.
  float* logits() const { return logits_.data(); }

  /// Queues; waits for nothing but room in the readback. Throws what was wrong with answers before.
  void push(std::uint64_t request, cudaStream_t stream) {
    const std::int64_t parts = parts_of(run_.requests().size(request));
    for (std::int64_t part = 0; part < parts; ++part)
      with_readback([&]<class Part>(penstock::Readback<Part>& readback) {
        readback.push(reinterpret_cast<const Part*>(logits_.data() + part * images_ * classes_),
                      stream,
                      [this, number = static_cast<std::uint32_t>(request),
                       index = static_cast<std::uint32_t>(part)](const Part& logits) {
                        tell(number, index, logits.logits.data());
                      });
      });
  }

  /// Waits until all is told.
  void drain() {
    with_readback([](auto& readback) { readback.drain(); });
  }

 private:
  template <std::int64_t Floats>
  struct PartOf {
    static constexpr std::int64_t size = Floats;
    std::array<float, Floats> logits;
  };
  using Small = PartOf<1280>;     // a batch of 128 with ten classes
  using Large = PartOf<128'000>;  // the same with a thousand: half a megabyte

  std::int64_t parts_of(std::int64_t images) const {
    if (images_ == 0)
      throw std::invalid_argument("more than " + std::to_string(part_size_) + " classes");
    return (images + images_ - 1) / images_;
  }

  template <class F>
  void with_readback(const F& f) {
    if (auto* small = std::get_if<penstock::Readback<Small>>(&readback_)) return f(*small);
    f(std::get<penstock::Readback<Large>>(readback_));
  }

  void tell(std::uint64_t request, std::int64_t part, const float* logits) {
    const std::int64_t first = part * images_;
    const std::int64_t images = std::min(images_, run_.requests().size(request) - first);
    run_.answers().tell(request, first, {logits, static_cast<std::size_t>(images * classes_)});
  }

  Run& run_;
  const std::int64_t classes_, part_size_, images_;  // images_: of a part
  const DeviceArray<float> logits_;
  // Last: its thread tells until it ends.
  std::variant<std::monostate, penstock::Readback<Small>, penstock::Readback<Large>> readback_;
};

}  // namespace resnet::rungs
