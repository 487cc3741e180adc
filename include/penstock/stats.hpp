// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a pipeline's time goes: for every stage the time it worked, the time it waited and on what;
// and from these, what bounds it.
//
//   std::cout << prefetcher.stats() << '\n';
//   if (prefetcher.stats().bottleneck() == penstock::Bottleneck::source) add_workers();

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <optional>
#include <ostream>
#include <penstock/verdict.hpp>
#include <sstream>
#include <string>

namespace penstock {

struct StageStats {
  std::chrono::nanoseconds busy{0};
  std::chrono::nanoseconds waiting_for_input{0};  ///< nothing came from the stage before
  std::chrono::nanoseconds waiting_for_room{0};   ///< the stage after did not take what is ready
  std::uint64_t batches = 0;
  std::uint64_t bytes = 0;
  double queued = 0;         ///< batches ready for the next stage when it looked, on average
  std::size_t capacity = 0;  ///< of that queue

  /// Part of its time that the stage worked, 0 ... 1.
  double utilisation() const {
    const auto all = (busy + waiting_for_input + waiting_for_room).count();
    return all == 0 ? 0.0 : static_cast<double>(busy.count()) / static_cast<double>(all);
  }
};

/// The consumer's stream on the device's own clock, by timing events (PrefetcherOptions::
/// device_times). The first batch is left out.
struct DeviceTimes {
  std::uint64_t copies = 0;                    ///< that Stats::copy's times are of
  std::uint64_t batches = 0;                   ///< that the times below are of
  std::chrono::nanoseconds consuming{0};       ///< it has a batch, or whatever else it was given
  std::chrono::nanoseconds awaiting_batch{0};  ///< it is out of work until a copy is issued
  std::chrono::nanoseconds awaiting_copy{0};   ///< it is out of work until that copy is over
  std::chrono::nanoseconds longest_wait{0};    ///< of both together, for one batch
};

/// A snapshot. `source` sums over the workers. `consumer` is the host's side: inside next(), and
/// between two calls; the first batch (the fill of the pipe) is kept out of it.
///
/// `copy` with device times is exact. Without, it is an estimate: at the end of every lease one
/// look at the oldest copy under way tells whether it runs, waits for its slot's last readers, or
/// is done, and stands for the time since the look before. Where host memory is pageable, it is the
/// time that threads spent inside the copy call.
struct Stats {
  StageStats source;
  StageStats copy;
  StageStats consumer;
  std::optional<DeviceTimes> device;         ///< only where device times were asked for
  std::chrono::nanoseconds first_batch{0};   ///< from construction until the first batch was there
  std::chrono::nanoseconds longest_wait{0};  ///< in one call of next(), after the first
  std::uint64_t skipped = 0, replaced = 0;   ///< batches that a FailurePolicy dealt with
  int workers = 0;
  std::size_t host_depth = 0, device_depth = 0;  ///< batches in pinned memory, on the device
  std::size_t host_bytes = 0, device_bytes = 0;  ///< memory that these take
  bool pinned = true;                            ///< host memory is page-locked

  /// What happened since `before`, an earlier snapshot of the same pipeline. The longest waits stay
  /// those of the whole time.
  Stats since(const Stats& before) const;

  /// The stage that bounds the rate: verdict().stage, without its text. Never one that was seen to
  /// wait for over half of its time.
  Bottleneck bottleneck() const;
  /// The same, and what to change. A pure function of these numbers.
  Verdict verdict() const;
};

namespace detail {

inline std::string in_seconds(std::chrono::nanoseconds time) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

inline std::string in_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << value << ' ' << kUnits[unit];
  return text.str();
}

inline void print_stage(std::ostream& out, const char* name, const StageStats& stage,
                        const char* input, const char* room) {
  std::ostringstream queue;
  if (stage.capacity > 0)
    queue << std::fixed << std::setprecision(1) << stage.queued << " of " << stage.capacity;
  out << std::left << std::setw(10) << name << std::right << std::setw(11) << in_seconds(stage.busy)
      << std::setw(11) << in_seconds(stage.waiting_for_input + stage.waiting_for_room) << "  "
      << std::left << std::setw(31)
      << (stage.waiting_for_room > stage.waiting_for_input ? room : input) << std::right
      << std::setw(9) << stage.batches << std::setw(12) << in_bytes(stage.bytes) << std::setw(12)
      << queue.str() << '\n';
}

}  // namespace detail

/// A table of seven short lines, or eight where batches failed: the stages, the memory, and the
/// verdict as the last.
inline std::ostream& operator<<(std::ostream& out, const Stats& stats) {
  std::ostringstream text;
  text << "stage            busy    waiting  for                              batches       bytes"
          "      queued\n";
  detail::print_stage(text, "source", stats.source, "-", "room in the ring");
  detail::print_stage(text, "copy", stats.copy, "a ready batch", "readers of the slot");
  detail::print_stage(text, "consumer", stats.consumer, "a batch on the device", "-");
  if (stats.skipped + stats.replaced > 0)
    text << "failed batches: " << stats.skipped << " skipped, " << stats.replaced << " replaced\n";
  text << stats.workers << " workers; " << stats.host_depth << " batches in "
       << (stats.pinned ? "pinned" : "pageable") << " memory ("
       << detail::in_bytes(stats.host_bytes) << "), " << stats.device_depth << " on the device ("
       << detail::in_bytes(stats.device_bytes) << "); first batch after "
       << detail::in_seconds(stats.first_batch) << '\n'
       << "bottleneck: " << to_string(stats.bottleneck()) << '\n'
       << "verdict: " << stats.verdict().sentence;
  return out << text.str();
}

}  // namespace penstock

#include <penstock/detail/measure/verdict.hpp>
