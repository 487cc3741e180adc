// SPDX-License-Identifier: Apache-2.0
#pragma once

// Watch: what a pipeline is waiting for, while it runs, on the standard error output: one line that
// is redrawn twice a second where that is a terminal; elsewhere a line every five seconds. And one
// at the end, of the whole run. It reads stats() on a thread of its own.
//
//   penstock::Prefetcher<Images> prefetcher{...};
//   const auto watch = examples::watch_if(options.watch, prefetcher);    // until its life ends

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <iomanip>
#include <memory>
#include <mutex>
#include <penstock/stats.hpp>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace examples {

/// Of the statistics of `seconds`: batches and bytes a second, batches that are ready, the GPU's
/// wait for input, the verdict.
inline std::string watch_line(const penstock::Stats& stats, double seconds) {
  const auto rate = [seconds](std::uint64_t count) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  };
  const penstock::Verdict verdict = stats.verdict();
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << rate(stats.consumer.batches) << " batches/s, "
       << rate(stats.copy.bytes) / 1e6 << " MB/s | ready " << stats.source.queued << " of "
       << stats.source.capacity << ", on the device " << stats.copy.queued << " of "
       << stats.copy.capacity << " | GPU waits " << std::setprecision(0) << 100 * verdict.starved
       << " % | " << to_string(verdict.stage) << ": " << to_string(verdict.kind);
  if (verdict.enough_workers > 0) line << " (" << verdict.enough_workers << ')';
  if (verdict.enough_host_depth > 0) line << " (host_depth " << verdict.enough_host_depth << ')';
  return line.str();
}

class Watch {
 public:
  struct Output {
    std::FILE* file = stderr;
    bool terminal = isatty(STDERR_FILENO) == 1;
    std::chrono::milliseconds interval{terminal ? 500 : 5000};
  };

  /// `stats` is called on another thread until this object's life ends.
  explicit Watch(std::function<penstock::Stats()> stats) : Watch(std::move(stats), Output()) {}
  Watch(std::function<penstock::Stats()> stats, Output output)
      : stats_(std::move(stats)),
        output_(output),
        thread_([this](const std::stop_token& stop) { watch(stop); }) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// Prints the line of the whole run, and leaves a terminal's cursor on a fresh line.
  ~Watch() {
    thread_.request_stop();
    thread_.join();
    const penstock::Stats all = stats_();
    print("watched: " + watch_line(all, seconds_since(start_)), "\n");
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }

  void watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    penstock::Stats before = stats_();
    Clock::time_point time = Clock::now();
    while (!stopped.wait_for(lock, stop, output_.interval, [&] { return stop.stop_requested(); })) {
      const penstock::Stats now = stats_();
      print(watch_line(now.since(before), seconds_since(time)), output_.terminal ? "" : "\n");
      before = now;
      time = Clock::now();
    }
  }

  void print(std::string line, const char* end) const {
    if (output_.terminal) {
      constexpr const char* kClearRest = "\x1b[K";  // of the line, where the last text was longer
      line = '\r' + line.substr(0, columns() - 1) + kClearRest;
    }
    std::fprintf(output_.file, "%s%s", line.c_str(), end);
    std::fflush(output_.file);
  }

  std::size_t columns() const {
    winsize size{};
    const bool known = ioctl(fileno(output_.file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col : 200;
  }

  const std::function<penstock::Stats()> stats_;
  const Output output_;
  const Clock::time_point start_ = Clock::now();
  std::jthread thread_;
};

/// Watches `prefetcher`, where that is wanted, until the result's life ends; else null.
template <class Prefetcher>
std::unique_ptr<Watch> watch_if(bool wanted, const Prefetcher& prefetcher) {
  if (!wanted) return nullptr;
  return std::make_unique<Watch>([&prefetcher] { return prefetcher.stats(); });
}

}  // namespace examples
