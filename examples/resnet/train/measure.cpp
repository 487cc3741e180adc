// SPDX-License-Identifier: Apache-2.0

#include "measure.hpp"

#include <algorithm>

#include "../../common/check.hpp"

namespace resnet {

Measure::Spans::Spans(std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i) {
    begins_.emplace_back(cudaEventDefault);
    ends_.emplace_back(cudaEventDefault);
  }
}

double Measure::Spans::total() const {
  double milliseconds = 0;
  for (std::size_t i = 0; i < used_; ++i) {
    float span = 0;
    examples::check(cudaEventElapsedTime(&span, begins_[i].get(), ends_[i].get()),
                    "cudaEventElapsedTime");
    milliseconds += static_cast<double>(span);
  }
  return milliseconds;
}

Timing Measure::timing(std::int64_t batch, std::int64_t done) const {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  Timing timing;
  if (done == 0) return timing;
  const double all = Milliseconds(stop_ - start_).count(), steps = static_cast<double>(done);
  timing.step = all / steps;
  timing.load = Milliseconds(load).count() / steps;
  timing.copy = Milliseconds(copy_).count() + copies.total() / steps;
  timing.compute = computes.total() / steps;
  timing.idle = std::max(0.0, 1 - timing.compute / timing.step);
  timing.images_per_second = 1000 * static_cast<double>(batch) / timing.step;
  timing.cores = 1000 * static_cast<double>(cpu_stop_ - cpu_start_) / CLOCKS_PER_SEC / all;
  return timing;
}

}  // namespace resnet
