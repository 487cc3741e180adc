// SPDX-License-Identifier: Apache-2.0
#pragma once

// A pipeline whose stages take as long as a case says, on an emulated machine whose bus has a known
// speed: the stages sleep, and note how long they really took; the machine's timeline says what its
// copies took. That is the truth that a verdict is held against: nothing of it comes from penstock.

#include <cstddef>
#include <cstdint>
#include <penstock/stats.hpp>
#include <string>

namespace penstock::test {

enum class Shape {
  steady,
  jitter,     ///< anything from 0.2 to 1.8 of the mean
  bursts,     ///< of eight batches seven are quick, and one takes the rest of the time
  stalls,     ///< every twentieth takes `stall` more
  lognormal,  ///< of this distribution, the middle half from 0.7 to 1.1 of the mean
  outliers,   ///< one in 16 takes ten times as long as the others
  phases,     ///< 32 batches take half of the mean, the next 32 one and a half times of it
};

/// Time that a stage takes for a batch.
struct Work {
  double milliseconds = 0.5;
  Shape shape = Shape::steady;
  double stall = 0;

  double of(std::uint64_t batch) const;
};

enum class Source {
  batch,
  sample,         ///< four samples a batch
  device,         ///< blocks its worker
  device_queues,  ///< queues its work on the worker's stream, and returns
};

enum class Loop {
  queues,  ///< queues its work on the stream, and asks for the next batch
  waits,   ///< the same, and waits for the stream
  works,   ///< waits for its batch, and works on the host
};

struct Pipeline {
  Source source = Source::batch;
  bool unbounded = false, ragged = false, floats = false, transforms = false;
  Loop loop = Loop::queues;
  /// `fill`: of one worker for a batch; `step`: of the loop. Without `= {}` g++ warns where a case
  /// leaves one out.
  Work fill = {}, step = {};
  double copy = 0.5, transform = 0;  ///< ms on the emulated bus, of page-locked memory; behind it
  int workers = 1;
  std::size_t host_depth = 0, device_depth = 2, leases = 1;  ///< leases that the loop holds
  std::uint64_t batches = 60, epochs = 1;                    ///< batches of all epochs
  bool device_times = true;
  /// ms: before the loop begins; more for each worker's first batch; more for the first step.
  double start = 0, first_fill = 0, first_step = 0;
  bool replaces = false;  ///< lease = next(stream): the old one ends when there is a new one

  std::string text() const;
};

/// What the stages noted, as parts of the time from the first step to the last. The period is that
/// behind the first 24 batches, if there are twice as many.
struct Truth {
  double period = 0;  ///< ms between two steps
  /// Loads: of all workers, the bus, the transform, the loop or its stream.
  double source = 0, copy = 0, transform = 0, consumer = 0;
  double starved() const { return 1 - consumer; }
  double late = 0;       ///< of the time, the longest that the loop or its stream waited
  double overslept = 0;  ///< of the time, by how much the stages together took longer than told
};

struct Outcome {
  Truth truth;
  Stats stats;
};

/// Runs the pipeline to its end.
Outcome run(const Pipeline& pipeline);

/// Case `number` of a seed: any kind of pipeline.
Pipeline draw(std::uint64_t seed, std::uint64_t number);

}  // namespace penstock::test
