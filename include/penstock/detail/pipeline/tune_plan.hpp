// SPDX-License-Identifier: Apache-2.0
#pragma once

// plan(): what a prefetcher reserves, and where it starts: the same without
// PrefetcherOptions::tune.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <penstock/detail/observe/tune_settings.hpp>
#include <penstock/detail/pipeline/require_count.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/prefetcher_options.hpp>
#include <penstock/source.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

struct PipelinePlan {
  PrefetcherOptions options;         ///< the numbers are those that are reserved
  TuneSettings start;                ///< what is in use at the start
  std::optional<TuneSettings> most;  ///< with tune
};

/// Of the pipeline that is planned.
struct Planned {
  SourceKind kind;
  bool is_stream;           ///< the sampler has no end
  std::size_t block_bytes;  ///< of a batch in pinned memory
};

/// The options, where 0 is replaced by what it stands for.
inline PrefetcherOptions without_zeros(PrefetcherOptions options, const Planned& planned) {
  require_workers("workers", options.workers, "one");
  require_depth("device_depth", options.device_depth, 1);
  if (planned.kind != SourceKind::device) require_depth("host_depth", options.host_depth, 0);
  if (options.workers == 0 || planned.is_stream) options.workers = 1;
  if (planned.kind == SourceKind::device)
    options.host_depth = options.device_depth;
  else if (options.host_depth == 0)
    options.host_depth =
        options.device_depth +
        (planned.kind == SourceKind::sample ? 2 : static_cast<std::size_t>(options.workers));
  return options;
}

inline std::size_t host_bytes_limit(const PrefetcherOptions& options) {
  return options.max_host_bytes == 0 ? usable_memory() / 2 : options.max_host_bytes;
}

inline void require_no_contradiction(const PrefetcherOptions& options, const Tune& tune) {
  require_workers("Tune::workers", tune.workers, "the cores of the process");
  require_depth("Tune::device_slots", tune.device_slots, 0);
  if (tune.device_slots != 0 && tune.device_slots < options.device_depth)
    throw std::invalid_argument("Tune::device_slots is " + std::to_string(tune.device_slots) +
                                ", less than device_depth, with which it starts (" +
                                std::to_string(options.device_depth) +
                                "): raise the one or lower the other");
  if (options.max_host_bytes != 0 && tune.host_bytes > options.max_host_bytes)
    throw std::invalid_argument("Tune::host_bytes is " + std::to_string(tune.host_bytes) +
                                ", over max_host_bytes, which is " +
                                std::to_string(options.max_host_bytes));
}

/// Batches in pinned memory, at most.
inline std::size_t most_host_depth(const PrefetcherOptions& options, const Tune& tune, int workers,
                                   const Planned& planned) {
  constexpr std::size_t kMostBatches = 1024, kForAllWorkers = 6;
  if (tune.host_bytes != 0) {
    const std::size_t room = std::min(tune.host_bytes / planned.block_bytes, kMostBatches);
    if (room < std::max<std::size_t>(1, options.host_depth))
      throw std::invalid_argument(
          "Tune::host_bytes is " + std::to_string(tune.host_bytes) + ", room for " +
          std::to_string(room) + " batches of " + std::to_string(planned.block_bytes) + " bytes (" +
          std::to_string(kMostBatches) + " at most): " +
          (options.host_depth == 0
               ? "give room for one"
               : "raise it, or lower host_depth, which is " + std::to_string(options.host_depth)));
    return room;
  }
  const std::size_t usual =
      options.device_depth +
      (planned.kind == SourceKind::sample ? kForAllWorkers : 2 * static_cast<std::size_t>(workers));
  const std::size_t room = host_bytes_limit(options) / planned.block_bytes;
  return std::max({options.host_depth, std::min(usual, room), std::size_t{1}});
}

inline PipelinePlan plan_tuned(PrefetcherOptions options, const Planned& planned) {
  const Tune tune = *options.tune;
  require_no_contradiction(options, tune);
  const bool on_device = planned.kind == SourceKind::device;
  const bool by_sample = planned.kind == SourceKind::sample;
  const int workers = planned.is_stream ? 1 : tune.workers == 0 ? usable_cores() : tune.workers;
  const std::size_t asked_depth = on_device ? 0 : options.host_depth;
  options.workers = std::min(options.workers, workers);
  options = without_zeros(std::move(options), planned);
  options.host_depth = asked_depth;

  TuneSettings start{static_cast<std::size_t>(options.workers), 0, options.device_depth};
  TuneSettings most{static_cast<std::size_t>(workers), 0, tune.device_slots};
  if (most.device_depth == 0)
    most.device_depth =
        on_device ? std::max(start.device_depth, most.workers + 2) : start.device_depth + 1;
  if (!on_device) most.host_depth = most_host_depth(options, tune, workers, planned);
  // Each worker fills a batch of its own.
  if (!by_sample) most.workers = std::min(most.workers, most.worker_depth());
  start.workers = std::min(start.workers, most.workers);
  if (on_device)
    start.device_depth =
        std::min(std::max(start.device_depth, start.workers + 2), most.device_depth);
  else
    start.host_depth = std::min(most.host_depth, asked_depth != 0 ? asked_depth
                                                 : by_sample      ? start.device_depth + 2
                                                                  : start.workers + 1);
  options.workers = static_cast<int>(most.workers);
  options.host_depth = most.worker_depth();
  options.device_depth = most.device_depth;
  return {std::move(options), start, most};
}

inline PipelinePlan plan(PrefetcherOptions options, const Planned& planned) {
  if (options.tune) return plan_tuned(std::move(options), planned);
  options = without_zeros(std::move(options), planned);
  const TuneSettings all{static_cast<std::size_t>(options.workers),
                         planned.kind == SourceKind::device ? 0 : options.host_depth,
                         options.device_depth};
  return {std::move(options), all, std::nullopt};
}

}  // namespace penstock::detail
