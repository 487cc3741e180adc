// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop of T14 to T17 with --input-apart: it trains on one batch, while another thread takes all
// others as fast as they come.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>
#include <stop_token>
#include <thread>

#include "../run.hpp"

namespace resnet {

/// Takes batches as fast as they come, on a thread and a stream of its own, and drops them.
template <class Prefetcher>
class Taker {
 public:
  explicit Taker(Prefetcher& prefetcher)
      : thread_([this, &prefetcher](const std::stop_token& stop) {
          const penstock::Stream stream;
          while (!stop.stop_requested() && prefetcher.next(stream.get())) ++taken_;
        }) {}

  /// From now on they are counted.
  void start() {
    begin_ = Clock::now();
    taken_ = 0;
  }
  double batches_per_second() const {
    return static_cast<double>(taken_) /
           std::chrono::duration<double>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point begin_ = Clock::now();
  std::atomic<std::int64_t> taken_{0};
  std::jthread thread_;  // The last: it uses the others.
};

/// Trains on one batch that stays on the device. `train(batch, step, graphs)` queues a step on the
/// run's stream. `before(step)` is called before each step.
template <class Batch, class Train, class Before>
void train_on_one(Run& run, const penstock::Lease<Batch>& batch, const Train& train,
                  const Before& before) {
  penstock::Readback<Metrics> losses(kStepsAhead);
  penstock::StepGraph graphs;
  run.for_each_step([&](Step& step) {
    before(step);
    step.compute(run.stream(), [&] { train(batch, step, graphs); });
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
}

/// --input-apart: what the input could give beside the training, and what it costs that.
template <class Prefetcher, class Train>
void train_beside_input(Run& run, Prefetcher& prefetcher, const Train& train) {
  const auto batch = prefetcher.next(run.stream());
  Taker<Prefetcher> taker(prefetcher);
  train_on_one(run, batch, train, [&](const Step& step) {
    if (step.number() == run.options().warmup) taker.start();
  });
  run.set_input_rate(taker.batches_per_second() * static_cast<double>(run.batch()));
  run.set_stats(prefetcher.stats());
}

/// The same for batches that come packed.
template <class Host>
void train_beside_input(Run& run, penstock::Prefetcher<Packed, Host>& prefetcher) {
  train_beside_input(
      run, prefetcher,
      [&run](const penstock::Lease<Packed>& batch, const Step& step, penstock::StepGraph& graphs) {
        const auto compute = [&] {
          run.train_step(batch->input.data_handle(), batch->labels.data_handle(), run.stream());
        };
        if (run.captures(step))
          graphs.launch(batch, run.stream(), compute);
        else
          compute();
      });
}

}  // namespace resnet
