// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a pipeline's time goes: for every stage the time it worked, the time it waited and on what;
// and from these, what bounds it.
//
//   std::cout << prefetcher.stats() << '\n';
//   if (prefetcher.stats().bottleneck() == penstock::Bottleneck::source) ...  // more workers would
//   help

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>

namespace penstock {

/// What bounds the rate of a pipeline.
enum class Bottleneck {
  source,    ///< the workers: they are busy, everybody else waits for batches
  copy,      ///< the way to the device: batches wait for it, the consumer waits for its end
  consumer,  ///< the user's loop or kernels: the pipeline is full and waits
  balanced,  ///< no stage waits for another to speak of
};

inline const char* to_string(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::source:
      return "source";
    case Bottleneck::copy:
      return "copy";
    case Bottleneck::consumer:
      return "consumer";
    case Bottleneck::balanced:
      return "balanced";
  }
  return "unknown";
}

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

/// A snapshot. `source` sums over the workers. `copy` is sampled: at the end of every lease one
/// look at the oldest copy under way tells whether it runs, waits for its slot's last readers, or
/// is done; shares of looks become shares of time. The first batch (the fill of the pipe) is kept
/// out of the consumer's times.
struct Stats {
  StageStats source;
  StageStats copy;
  StageStats consumer;
  std::chrono::nanoseconds first_batch{0};  ///< from construction until the first batch was there
  std::uint64_t skipped = 0, replaced = 0;  ///< batches that a FailurePolicy dealt with
  int workers = 0;
  std::size_t host_depth = 0, device_depth = 0;  ///< batches in pinned memory, on the device
  std::size_t host_bytes = 0, device_bytes = 0;  ///< memory that these take
  bool pinned = true;                            ///< host memory is page-locked

  Bottleneck bottleneck() const {
    constexpr double kAtItsLimit = 0.9;  // a stage that works for this part of its time
    constexpr double kJitter = 0.05;     // waits below this part of the time mean nothing
    const bool starved = 1 - consumer.utilisation() > kJitter;
    if (source.utilisation() > kAtItsLimit)
      return starved ? Bottleneck::source : Bottleneck::balanced;
    // The source waits. For the copies, if most looks found one running; else for the consumer.
    return copy.utilisation() > 0.5 ? Bottleneck::copy : Bottleneck::consumer;
  }
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

/// A table of six short lines.
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
       << "bottleneck: " << to_string(stats.bottleneck());
  return out << text.str();
}

}  // namespace penstock
