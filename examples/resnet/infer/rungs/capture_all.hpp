// SPDX-License-Identifier: Apache-2.0
#pragma once

// capture_all: every context captures its graphs of every slot before the first request, so that
// none is captured later; and the time that a request takes when all contexts compute.
//
//   std::deque<Context> contexts;                  // in_contexts.hpp says what a Context has
//   capture_all<Batch>(run, prefetcher, contexts);

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "feed.hpp"
#include "logits_readback.hpp"

namespace resnet::rungs {

/// Milliseconds that the device takes for a request while every context computes all the time, and
/// records are decoded beside them, but nothing is copied: those of a context by itself would not
/// tell, as all share the device. Each context has two batches to itself. Waits.
template <class Batch, class Context>
double time_side_by_side(Run& run, std::deque<Context>& contexts,
                         const std::vector<penstock::Lease<Batch>>& batches) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto images_of = [&](const penstock::Lease<Batch>& batch) {
    return run.requests().size(batch.ticket().batch);
  };
  Preparation<Batch> preparation(run);
  const auto time = [&](int rounds) {
    const auto begin = Measure::Clock::now();
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < batches.size(); ++i) {
        preparation.queue(images_of(batches[i]));
        contexts[i / 2].infer(batches[i], run.lane(static_cast<int>(i / 2)).stream());
      }
    for (int i = 0; i < run.lanes(); ++i)
      examples::check(cudaStreamSynchronize(run.lane(i).stream()), "cudaStreamSynchronize");
    preparation.wait();
    return Milliseconds(Measure::Clock::now() - begin).count();
  };
  const int rounds = static_cast<int>(std::clamp(100 / time(1), 1.0, 100.0));
  std::int64_t images = 0;
  for (const auto& batch : batches) images += images_of(batch);
  return time(rounds) / rounds * run.images_per_request() / static_cast<double>(images);
}

/// Takes a batch for every slot at once, so that each context captures its graphs of all of them
/// now, and none later. The first context answers these batches.
template <class Batch, class Prefetcher, class Context>
void capture_all(Run& run, Prefetcher& prefetcher, std::deque<Context>& contexts) {
  std::vector<penstock::Lease<Batch>> batches;
  for (int i = 0; i < 2 * run.lanes(); ++i)
    batches.push_back(prefetcher.next(run.lane(0).stream()));
  for (int i = 0; i < run.lanes(); ++i) {
    Context& context = contexts[static_cast<std::size_t>(i)];
    const cudaStream_t stream = run.lane(i).stream();
    warm_up(run, context.network, context.answers.logits(), stream);
    for (auto& batch : batches) {
      batch.also_used_on(stream);
      context.capture(batch, stream);
    }
    // The next context writes behind the same batches.
    examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  run.set_compute_time(time_side_by_side(run, contexts, batches));
  for (const auto& batch : batches) {
    contexts[0].infer(batch, run.lane(0).stream());
    contexts[0].answers.push(batch.ticket().batch, run.lane(0).stream());
  }
  run.answered_before(batches.size());
}

}  // namespace resnet::rungs
