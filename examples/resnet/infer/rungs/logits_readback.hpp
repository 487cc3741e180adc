// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogitsReadback: the logits of a batch on their way to the run's answers, told by a thread of
// their own (Readback).
//
//   LogitsReadback answers(run);
//   context.run(images, pixels, answers.logits(), stream);
//   answers.push(request, stream);                     // logits() may be overwritten in the stream
//   answers.drain();

#include <cstdint>
#include <penstock/readback.hpp>
#include <span>

#include "run.hpp"

namespace resnet::rungs {

/// One thread at a time.
class LogitsReadback {
 public:
  /// `run` outlives this.
  explicit LogitsReadback(Run& run)
      : run_(run),
        logits_(run.logits()),
        readback_(batches_under_way, static_cast<std::size_t>(run.logits())) {}

  /// In device memory: of the largest batch.
  float* logits() const { return logits_.data(); }

  /// Queues; waits for nothing but room in the readback. Throws what was wrong with answers before.
  void push(std::uint64_t request, cudaStream_t stream) {
    const std::int64_t count = run_.requests().size(request) * run_.network().classes();
    readback_.push(logits_.data(), static_cast<std::size_t>(count), stream,
                   [this, request](std::span<const float> logits) {
                     run_.answers().tell(request, 0, logits);
                   });
  }

  /// Waits until all is told.
  void drain() { readback_.drain(); }

 private:
  static constexpr std::size_t batches_under_way = 8;

  Run& run_;
  const DeviceArray<float> logits_;
  penstock::Readback<float[]> readback_;  // last: its thread tells until it ends
};

}  // namespace resnet::rungs
