// SPDX-License-Identifier: Apache-2.0
#pragma once

// Measure: where the time of a training run goes, without stopping it. Loading is timed on the
// host; copies and computing by events on their streams, which are read when all is over.

#include <chrono>
#include <cstdint>
#include <ctime>
#include <penstock/cuda.hpp>
#include <vector>

namespace resnet {

/// Of the measured steps; milliseconds a step.
struct Timing {
  double step = 0;
  double load = 0;     ///< on the host, by the thread that trains
  double copy = 0;     ///< on the copy's stream
  double compute = 0;  ///< on the compute stream, first kernel to last
  double idle = 0;     ///< part of the time in which no step computes
  double images_per_second = 0;
  double cores = 0;  ///< of the CPU, in use by the whole process
};

class Measure {
 public:
  using Clock = std::chrono::steady_clock;

  /// What a stream does between two calls. Nothing allocates after construction.
  class Spans {
   public:
    explicit Spans(std::int64_t steps);
    void begin(cudaStream_t stream) { begins_[used_].record(stream); }
    void end(cudaStream_t stream) { ends_[used_++].record(stream); }
    /// Milliseconds in all, of work that is done.
    double total() const;

   private:
    std::vector<penstock::Event> begins_, ends_;
    std::size_t used_ = 0;
  };

  /// With room for one copy more: a step may copy for the next one too.
  explicit Measure(std::int64_t steps) : copies(steps + 1), computes(steps) {}

  void start() {
    cpu_start_ = std::clock();
    start_ = Clock::now();
  }
  void stop() {
    stop_ = Clock::now();
    cpu_stop_ = std::clock();
  }
  bool running() const { return start_ != Clock::time_point() && stop_ == Clock::time_point(); }

  /// The time of a copy, in place of the spans of copies.
  void set_copy_time(std::chrono::nanoseconds time) { copy_ = time; }

  /// Once all streams are done.
  Timing timing(std::int64_t batch, std::int64_t done) const;

  Spans copies, computes;
  std::chrono::nanoseconds load{0};

 private:
  std::chrono::nanoseconds copy_{0};  // of a batch
  Clock::time_point start_, stop_;
  std::clock_t cpu_start_ = 0, cpu_stop_ = 0;
};

}  // namespace resnet
