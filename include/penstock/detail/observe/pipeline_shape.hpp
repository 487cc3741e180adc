// SPDX-License-Identifier: Apache-2.0
#pragma once

// PipelineShape: what a replay must know about a pipeline besides its batches, and the limits of
// its settings.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/tune_settings.hpp>
#include <penstock/stats.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

struct PipelineShape {
  PipelineSetup setup;
  bool on_device = false;  ///< a worker fills a batch directly in a device slot; nothing is copied
  TuneSettings present{1, 1, 1};

  /// Batches that were opened before this time had other settings.
  Ticks since = 0;

  /// The fraction of a worker's time in the source in which it computes; 0: unknown.
  double computing = 0;
  /// The number of batches for which memory is allocated, if that is more than the depths.
  std::size_t host_allocated = 0, device_allocated = 0;
  std::size_t host_bytes = 0, device_bytes = 0;  ///< of a batch; 0: unknown

  /// The number of pieces of a batch that workers fill independently: its rows, or 1.
  int pieces() const {
    constexpr std::int64_t kMost = 1 << 20;
    return setup.per_sample ? static_cast<int>(std::clamp<std::int64_t>(setup.batch_size, 1, kMost))
                            : 1;
  }
  /// The depth that limits how many batches the workers fill at a time.
  std::size_t TuneSettings::*worker_depth() const {
    return on_device ? &TuneSettings::device_depth : &TuneSettings::host_depth;
  }

  // ---- Limits

  /// The largest number of workers for which there are enough cores, batches in the run, or memory.
  std::size_t by_cores() const {
    constexpr double kNoise = 0.05;
    if (setup.cores == 0 || computing <= kNoise) return kNoLimit;
    return std::max<std::size_t>(1, static_cast<std::size_t>(setup.cores / computing + 0.1));
  }
  std::size_t by_run() const {
    if (setup.unbounded) return 1;
    return setup.per_sample ? kNoLimit : within_run(kNoLimit);
  }
  std::size_t by_memory() const {
    if (setup.per_sample) return kNoLimit;
    const std::size_t room = on_device ? most_slots() : most_blocks();
    return room - std::min(room, on_device ? kSlotsBesideWorkers : present.device_depth);
  }
  /// The largest number of workers that all limits allow, and at least the present number.
  std::size_t most_workers() const {
    return std::max(present.workers, std::min({by_cores(), by_run(), by_memory(),
                                               kManyMore * present.workers + kManyMore}));
  }
  /// Settings with so much memory that `workers` workers cannot use more, within the limits.
  TuneSettings most(std::size_t workers) const {
    TuneSettings most{workers, present.host_depth, present.device_depth + kMoreSlots};
    if (on_device) most.device_depth += workers;
    most.device_depth =
        std::max(present.device_depth, std::min(within_run(most.device_depth), most_slots()));
    if (!on_device)
      most.host_depth = std::max(
          present.host_depth,
          std::min(most_blocks(), within_run(std::max(present.host_depth, following(most)) +
                                             workers + kMoreBlocks)));
    return most;
  }
  /// The `host_depth` that the pipeline derives from these settings; 0 if it does not derive it.
  std::size_t following(const TuneSettings& settings) const {
    if (!setup.deepens || on_device) return 0;
    return settings.device_depth + (setup.per_sample ? 2 : settings.workers);
  }
  /// The bytes that the settings need beyond what is allocated.
  std::size_t more_bytes(const TuneSettings& settings) const {
    const auto beyond = [](std::size_t depth, std::size_t now, std::size_t allocated) {
      return depth - std::min(depth, std::max(now, allocated));
    };
    return beyond(settings.host_depth, present.host_depth, host_allocated) * host_bytes +
           beyond(settings.device_depth, present.device_depth, device_allocated) * device_bytes;
  }

 private:
  static constexpr std::size_t kNoLimit = 1 << 20, kManyMore = 16, kMoreBlocks = 32, kMoreSlots = 8;
  static constexpr std::size_t kSlotsBesideWorkers = 2;  // one that is leased and one that is ready

  static std::size_t room(std::size_t limit, std::size_t bytes) {
    return limit == 0 || bytes == 0 ? kNoLimit : limit / bytes;
  }
  std::size_t most_blocks() const { return room(setup.host_limit, host_bytes); }
  std::size_t most_slots() const { return room(setup.device_limit, device_bytes); }
  std::size_t within_run(std::size_t depth) const {
    return setup.batches == 0 ? depth : std::min<std::size_t>(depth, setup.batches);
  }
};

}  // namespace penstock::detail
