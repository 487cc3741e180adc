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
#include <stdexcept>
#include <string>

namespace penstock::detail {

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

inline PipelinePlan plan_tuned(PrefetcherOptions options, const Tune& tune,
                               const Planned& planned) {
  require_no_contradiction(options, tune);
  const bool on_device = planned.kind == SourceKind::device;
  int workers = tune.workers == 0 ? usable_cores() : tune.workers;
  if (planned.is_stream) workers = 1;
  const auto for_workers = static_cast<std::size_t>(workers) + 2;

  PrefetcherOptions start = options;
  start.workers = std::min(options.workers, workers);
  const std::size_t asked_depth = on_device ? 0 : options.host_depth;
  start = without_zeros(start, planned);
  options = start;
  options.device_depth = tune.device_slots != 0 ? tune.device_slots
                         : on_device            ? std::max(start.device_depth, for_workers)
                                                : start.device_depth + 1;
  PrefetcherOptions asked = start;
  asked.host_depth = asked_depth;
  options.host_depth =
      on_device ? options.device_depth : most_host_depth(asked, tune, workers, planned);

  const bool by_sample = planned.kind == SourceKind::sample;
  // Each worker fills a batch of its own.
  if (!by_sample)
    workers = static_cast<int>(
        std::min<std::size_t>(static_cast<std::size_t>(workers), options.host_depth));
  options.workers = workers;
  const auto started = static_cast<std::size_t>(std::min(start.workers, workers));
  TuneSettings most{static_cast<std::size_t>(workers), options.host_depth, options.device_depth};
  TuneSettings first{started, by_sample ? start.device_depth + 2 : started + 1, start.device_depth};
  if (asked_depth != 0) first.host_depth = asked_depth;
  first.host_depth = std::min(first.host_depth, most.host_depth);
  if (on_device) {
    first.device_depth = std::min(std::max(start.device_depth, started + 2), most.device_depth);
    first.host_depth = most.host_depth = 0;
  }
  return {options, first, most};
}

inline PipelinePlan plan(PrefetcherOptions options, const Planned& planned) {
  if (options.tune) {
    const Tune tune = *options.tune;
    return plan_tuned(std::move(options), tune, planned);
  }
  options = without_zeros(std::move(options), planned);
  const TuneSettings all{static_cast<std::size_t>(options.workers),
                         planned.kind == SourceKind::device ? 0 : options.host_depth,
                         options.device_depth};
  return {std::move(options), all, std::nullopt};
}

}  // namespace penstock::detail
