// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pace: how fast a run is and where its loss is, for the line of progress. It knows what has come
// back from the device, not what is queued.
//
//   Pace pace;
//   readback.push(metrics, stream, [&](const Metrics& metrics) { pace.tell(metrics); });
//   progress.to(step, [&] { return pace.text(); });      // "5120 images/s, loss 1.8034"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "../ops/ops.hpp"

namespace resnet {

/// One thread tells, any thread asks.
class Pace {
 public:
  /// The metrics of one step.
  void tell(const Metrics& metrics) {
    if (std::isfinite(metrics.loss))  // Else the step was skipped.
      loss_.store(metrics.loss / metrics.samples, std::memory_order_relaxed);
    images_.store(images() + static_cast<double>(metrics.samples), std::memory_order_release);
  }

  /// Images that were told.
  double images() const { return images_.load(std::memory_order_acquire); }
  double images_per_second() const {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    return images() / seconds.count();
  }
  /// Empty before anything was told.
  std::string text() const {
    if (images() == 0) return {};
    char text[80];
    std::snprintf(text, sizeof(text), "%.0f images/s, loss %.4f", images_per_second(),
                  static_cast<double>(loss_.load(std::memory_order_relaxed)));
    return text;
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<double> images_{0};
  std::atomic<float> loss_{std::numeric_limits<float>::quiet_NaN()};
};

}  // namespace resnet
