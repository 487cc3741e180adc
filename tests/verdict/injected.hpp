// SPDX-License-Identifier: Apache-2.0
#pragma once

// A pipeline whose stages take as long as a case says: they sleep, and they note how long they
// really took. What they noted is the truth that a verdict is held against; nothing of it comes
// from penstock.

#include <cstddef>
#include <cstdint>
#include <penstock/stats.hpp>

namespace penstock::test {

enum class Shape {
  steady,
  jitter,  ///< anything from 0.2 to 1.8 of the mean
  bursts,  ///< of eight batches seven are quick, and one takes the rest of the time
  stalls,  ///< every twentieth takes `stall` more
};

/// Time that a stage takes for a batch.
struct Work {
  double milliseconds = 0.5;
  Shape shape = Shape::steady;
  double stall = 0;

  double of(std::uint64_t batch) const;
};

struct Injected {
  const char* name;
  Work source, consumer;
  double copy = 0.5;  ///< ms on the emulated bus, of page-locked memory
  int workers = 1;
  std::size_t host_depth = 6, device_depth = 2;
  bool synchronous = false;  ///< the loop waits for each step
  bool on_device = false;    ///< the source writes the slots, and blocks its worker
  bool device_times = true;
  std::uint64_t batches = 60;
  VerdictKind expected = VerdictKind::balanced;  ///< if the stages take what they should
};

/// What the stages noted, as parts of the time from the first step to the last.
struct Truth {
  double period = 0;                          ///< ms between two steps
  double source = 0, copy = 0, consumer = 0;  ///< loads: of all workers, the bus, the stream
  double one_worker = 0;                      ///< ms that one worker takes for a batch
  double starved() const { return 1 - consumer; }
};

struct Outcome {
  Truth truth;
  Stats stats;
};

/// Runs the pipeline to its end.
Outcome run(const Injected& injected);

}  // namespace penstock::test
