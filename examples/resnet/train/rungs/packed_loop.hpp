// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop of T14 to T17: batches come from a prefetcher, a step is one graph, and its metrics come
// back without stopping anybody.

#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include "../../../common/watch.hpp"
#include "../run.hpp"
#include "input_apart.hpp"

namespace resnet {

/// `train(batch, step, graphs)` queues a step on the run's stream.
template <class Batch, class Host, class Train>
void train_on_batches(Run& run, penstock::Prefetcher<Batch, Host>& prefetcher, const Train& train) {
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  if (run.options().input_apart) return train_beside_input(run, prefetcher, train);
  penstock::Readback<Metrics> losses(kStepsAhead);
  penstock::StepGraph graphs;

  run.for_each_step([&](Step& step) {
    penstock::Lease<Batch> batch;
    step.load([&] { batch = prefetcher.next(run.stream()); });
    step.compute(run.stream(), [&] { train(batch, step, graphs); });
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
  run.set_stats(prefetcher.stats());
}

/// Of batches that come packed.
template <class Host>
void train_packed(Run& run, penstock::Prefetcher<Packed, Host>& prefetcher) {
  train_on_batches(
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
