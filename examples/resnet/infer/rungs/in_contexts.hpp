// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop of I8, which I9 shares: several host threads, each with a context of its own, and one
// prefetcher, which gives each batch to whoever asks next. The rung says what a context is:
//
//   struct Context {
//     explicit Context(Run&);
//     void capture(const Lease<Batch>&, cudaStream_t);   // every graph of the lease's slot
//     void infer(const Lease<Batch>&, cudaStream_t);     // by one of them, into answers.logits()
//     InferenceContext network; LogitsReadback answers;
//   };

#include <deque>

#include "capture_all.hpp"

namespace resnet::rungs {

template <class Context, class Batch>
void infer_in_contexts(Run& run) {
  auto prefetcher = make_prefetcher<Batch>(run, 2 * static_cast<std::size_t>(run.lanes()));
  const auto watch = examples::watch_if(run.options().watch, prefetcher);
  std::deque<Context> contexts;
  for (int i = 0; i < run.lanes(); ++i) contexts.emplace_back(run);
  capture_all<Batch>(run, prefetcher, contexts);

  run.in_every_lane([&](Lane& lane) {
    Context& context = contexts[static_cast<std::size_t>(lane.index())];
    const auto infer_next = [&] {
      penstock::Lease<Batch> batch;
      lane.load([&] { batch = prefetcher.next(lane.stream()); });
      lane.compute([&] { context.infer(batch, lane.stream()); });
      context.answers.push(batch.ticket().batch, lane.stream());
    };
    lane.for_each_request(infer_next, [&] { context.answers.drain(); });
  });
  run.set_copy_time(prefetcher.stats());
}

}  // namespace resnet::rungs
