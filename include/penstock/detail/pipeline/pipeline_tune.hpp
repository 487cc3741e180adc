// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a Pipeline follows its tuner.

#include <penstock/detail/pipeline/pipeline.hpp>

namespace penstock::detail {

/// Only the thread that takes a batch calls this.
PENSTOCK_INLINE void Pipeline::tune() {
  Autotuner& tuner = *route_->tuner;
  ConsumerWatch& watch = route_->watch;
  const std::size_t staged = ring_.staged();
  tuner.note_ready(
      [&](std::size_t most) { return staged + (staged < most ? ring_.filled(most - staged) : 0); });
  if (!tuner.count_take(watch.clock.busy(), watch.clock.waiting())) return;
  TuneCounts counts;
  route_->samples.collect();
  watch.add_to(counts, route_->samples.sums());
  add_to(counts);
  if (!route_->on_device) route_->stage.add_to(counts);
  if (tuner.look(counts)) use(tuner.settings());
}

/// Takes one more slot into use if the consumer has leased all of them, or if one was lost.
PENSTOCK_INLINE void Pipeline::tune_slots() {
  Autotuner& tuner = *route_->tuner;
  const DeviceArena& arena = route_->stage.arena();
  const std::size_t lost = arena.lost_slots();
  const std::size_t gone = route_->watch.leased() + arena.parked_slots() + lost;
  const TuneReason reason = lost > 0 ? TuneReason::lost : TuneReason::leases;
  if (gone < tuner.slots() || !tuner.add_slot(route_->watch.delivered(), reason)) return;
  if (route_->on_device)
    use(tuner.settings());
  else
    route_->stage.use(tuner.slots());
  stage();
}

/// An error of CUDA's has maybe cost a block: another one is taken into use.
PENSTOCK_INLINE void Pipeline::tune_after(const std::exception_ptr& error) {
  Autotuner& tuner = *route_->tuner;
  try {
    std::rethrow_exception(error);
  } catch (const CudaError&) {
    if (tuner.add_depth(route_->watch.delivered(), TuneReason::lost)) use(tuner.settings());
  } catch (...) {
  }
}

/// Adds what the workers did to `counts`.
PENSTOCK_INLINE void Pipeline::add_to(TuneCounts& counts) const {
  // Workers that fill a batch together do not rest between two of them.
  for (const WorkerTrace& trace : traces_) {
    counts.filling += together() ? trace.busy() : trace.busy_until_its_last_rest();
    counts.filled += trace.batches();
    counts.workers_waiting += trace.waiting();
    counts.cpu += trace.cpu();
  }
}

}  // namespace penstock::detail
