// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop of T14, T15 and T16: batches come packed from a prefetcher, a step is one graph, and its
// metrics come back without stopping anybody.

#include <penstock/prefetcher.hpp>
#include <penstock/readback.hpp>
#include <penstock/step_graph.hpp>

#include "../../../common/watch.hpp"
#include "../run.hpp"
#include "input_apart.hpp"

namespace resnet {

template <class Host>
void train_packed(Run& run, penstock::Prefetcher<Packed, Host>& prefetcher) {
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  if (run.options().input_apart) return train_beside_input(run, prefetcher);
  penstock::Readback<Metrics> losses(kStepsAhead);
  penstock::StepGraph graphs;

  run.for_each_step([&](Step& step) {
    penstock::Lease<Packed> batch;
    step.load([&] { batch = prefetcher.next(run.stream()); });
    const auto compute = [&] {
      run.train_step(batch->input.data_handle(), batch->labels.data_handle(), run.stream());
    };
    step.compute(run.stream(), [&] {
      if (run.captures(step))
        graphs.launch(batch, run.stream(), compute);
      else
        compute();
    });
    losses.push(run.network().metrics(), run.stream(), step.teller());
  });
  losses.drain();
  run.set_stats(prefetcher.stats());
}

}  // namespace resnet
