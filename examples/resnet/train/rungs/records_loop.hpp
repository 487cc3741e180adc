// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop of T14, on one rank and, as T13, on several: the records themselves cross the bus, and
// the step is one graph.

#include "packed_loop.hpp"

namespace resnet {

inline void train_on_records(Run& run) {
  penstock::Prefetcher<Packed, Records> prefetcher(
      records_layout(run.batch()), run.sampler(), RecordSource{&run.data().records()},
      decode_on_device(run.input_format(), run.augmentation()),
      {.workers = run.options().workers,
       .epochs = run.epochs(),
       .device_times = run.options().watch});
  train_packed(run, prefetcher);
}

}  // namespace resnet
