// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pipeline: the members that ask the tuner and follow it.

#include <penstock/detail/pipeline/pipeline.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A worker that has published a batch calls this.
PENSTOCK_INLINE void Pipeline::tune() noexcept {
  WorkerTimes times;
  for (const WorkerTrace& trace : traces_) {
    times.busy += static_cast<double>(trace.busy().count());
    times.cpu += static_cast<double>(trace.cpu().count());
  }
  route_->samples.collect();
  if (route_->tuner->look(route_->timeline, times, ticks())) use_tuned();
}

PENSTOCK_INLINE void Pipeline::use_tuned() {
  route_->tuner->apply([this](const TuneSettings& settings) {
    use(settings);
    if (!route_->on_device) route_->stage.use(settings.device_depth);
  });
  stage();
}

/// Sets how many workers run and how many batches have memory from now on, within what is reserved.
/// Any thread may call this.
PENSTOCK_INLINE void Pipeline::use(const TuneSettings& settings) {
  memory_.use(settings.worker_depth());
  permits_.allow(static_cast<int>(settings.workers));
}

/// Takes one more slot into use if the consumer has leased all of them, or if one was lost.
PENSTOCK_INLINE void Pipeline::tune_slots() {
  Tuner& tuner = *route_->tuner;
  const DeviceArena& arena = route_->stage.arena();
  const std::size_t lost = arena.lost_slots();
  const std::size_t gone = route_->leased() + arena.parked_slots() + lost;
  const TuneReason reason = lost > 0 ? TuneReason::lost : TuneReason::leases;
  if (gone >= tuner.slots() && tuner.add_slot(route_->delivered, reason)) use_tuned();
}

/// Takes another block into use after an error of CUDA's, which may have cost one.
PENSTOCK_INLINE void Pipeline::tune_after(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CudaError&) {
    if (route_->tuner->add_memory(route_->delivered)) use_tuned();
  } catch (...) {
  }
}

}  // namespace penstock::detail
