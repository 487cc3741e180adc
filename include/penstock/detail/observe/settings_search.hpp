// SPDX-License-Identifier: Apache-2.0
#pragma once

// SettingsSearch: the cheapest settings with which a replay is about as fast as with any, within
// what the cores, the memory and the run have room for.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <penstock/detail/observe/replay.hpp>

namespace penstock::detail {

class SettingsSearch {
 public:
  /// Settings, and the period that a replay has with them, in nanoseconds.
  struct Found {
    ReplaySettings settings;
    double period = 0;
  };

  explicit SettingsSearch(const Replay& replay)
      : replay_(replay), shape_(replay.shape()), present_(replay.present()) {}

  double period(const ReplaySettings& settings) const {
    return static_cast<double>(replay_.run(settings).period.count());
  }
  Found present() const { return {present_, period(present_)}; }
  /// With the present workers.
  Found depths() const { return cheapest(present_.workers); }
  /// With as many workers as help.
  Found workers() const { return cheapest(most_workers()); }

  /// Workers beyond which something is missing for one more.
  int most_workers() const {
    return std::max(present_.workers, std::min({by_cores(), by_run(), by_memory(),
                                                kManyMore * present_.workers + kManyMore}));
  }
  int by_cores() const {
    constexpr double kNoise = 0.05;
    if (shape_.cores == 0 || shape_.computing <= kNoise) return kNoLimit;
    return std::max(1, static_cast<int>(shape_.cores / shape_.computing + 0.1));
  }
  int by_run() const {
    if (shape_.unbounded) return 1;
    if (shape_.source == SourceShape::per_sample || shape_.batches == 0) return kNoLimit;
    return static_cast<int>(std::min<std::uint64_t>(shape_.batches, kNoLimit));
  }
  int by_memory() const {
    if (shape_.source == SourceShape::per_sample) return kNoLimit;
    const std::size_t room = shape_.on_device() ? most_slots() : most_blocks();
    const std::size_t others = shape_.on_device() ? kSlotsBesideWorkers : present_.device_depth;
    return static_cast<int>(std::min<std::size_t>(room - std::min(room, others), kNoLimit));
  }

  /// `host_depth` with these settings: it may follow them by itself.
  std::size_t least_blocks(int workers, std::size_t slots) const {
    if (shape_.on_device()) return 0;
    if (!shape_.deepens) return present_.host_depth;
    const auto filled =
        shape_.source == SourceShape::per_sample ? 2 : static_cast<std::size_t>(workers);
    return std::max(present_.host_depth, slots + filled);
  }
  /// Memory that settings take beyond the present ones.
  std::size_t more_bytes(const ReplaySettings& settings) const {
    const auto beyond = [](std::size_t depth, std::size_t now) {
      return depth - std::min(depth, now);
    };
    return beyond(settings.host_depth, std::max(present_.host_depth, shape_.host_allocated)) *
               shape_.host_bytes +
           beyond(settings.device_depth, std::max(present_.device_depth, shape_.device_allocated)) *
               shape_.device_bytes;
  }

 private:
  static constexpr int kNoLimit = 1 << 20, kManyMore = 16;
  static constexpr std::size_t kSlotsBesideWorkers = 2;  // One is leased, and one is ready.
  static constexpr std::size_t kMoreBlocks = 32, kMoreSlots = 8;
  static constexpr double kSlack = 1.01;  // Settings within this of the best are as fast.

  static std::size_t room(std::size_t limit, std::size_t bytes) {
    return limit == 0 || bytes == 0 ? std::size_t{kNoLimit} : limit / bytes;
  }
  std::size_t within_run(std::size_t depth) const {
    return shape_.batches == 0 ? depth : std::min<std::size_t>(depth, shape_.batches);
  }
  std::size_t most_blocks() const { return room(shape_.host_limit, shape_.host_bytes); }
  std::size_t most_slots() const { return room(shape_.device_limit, shape_.device_bytes); }

  /// The least value from `low` to `high` for which `suffices`, which holds for `high`.
  template <class Suffices>
  static std::size_t least(std::size_t low, std::size_t high, Suffices suffices) {
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (suffices(middle))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  Found cheapest(int workers) const {
    ReplaySettings best = present_;
    best.workers = workers;
    const std::size_t more =
        shape_.on_device() ? static_cast<std::size_t>(workers) + kMoreSlots : kMoreSlots;
    best.device_depth = std::max(present_.device_depth,
                                 std::min(within_run(present_.device_depth + more), most_slots()));
    const auto blocks = [&](const ReplaySettings& settings) {
      return std::max(
          present_.host_depth,
          std::min(most_blocks(),
                   within_run(least_blocks(settings.workers, settings.device_depth) +
                              static_cast<std::size_t>(settings.workers) + kMoreBlocks)));
    };
    const bool has_blocks = !shape_.on_device();
    if (has_blocks) best.host_depth = blocks(best);
    const double enough = kSlack * period(best);
    const auto try_with = [&](auto set) {
      return [&, set](std::size_t value) {
        ReplaySettings settings = best;
        set(settings, value);
        return period(settings) <= enough;
      };
    };
    const auto set_slots = [](ReplaySettings& settings, std::size_t value) {
      settings.device_depth = value;
    };
    const auto set_workers = [](ReplaySettings& settings, std::size_t value) {
      settings.workers = static_cast<int>(value);
    };
    const auto set_blocks = [](ReplaySettings& settings, std::size_t value) {
      settings.host_depth = value;
    };
    if (!shape_.on_device())
      best.device_depth = least(present_.device_depth, best.device_depth, try_with(set_slots));
    best.workers =
        static_cast<int>(least(static_cast<std::size_t>(present_.workers),
                               static_cast<std::size_t>(workers), try_with(set_workers)));
    if (shape_.on_device())
      best.device_depth = least(present_.device_depth, best.device_depth, try_with(set_slots));
    if (has_blocks) {
      const std::size_t fewest =
          std::min(best.host_depth, least_blocks(best.workers, best.device_depth));
      best.host_depth = least(fewest, best.host_depth, try_with(set_blocks));
    }
    return {best, period(best)};
  }

  const Replay& replay_;
  const PipelineShape& shape_;
  const ReplaySettings present_;
};

}  // namespace penstock::detail
