// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shows the progress of long work on standard error. A terminal gets one line that is redrawn in
// place; any other output gets a line for each tenth of the work.

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace pack {

/// Formats 1234567 as 1,234,567.
inline std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3;) text.insert(place -= 3, 1, ',');
  return text;
}

/// Formats bytes with three digits: 82.1 kB, 1.04 GB.
inline std::string in_bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit < 5; ++unit) bytes /= 1000;
  char text[32];
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof(text), "%.*f %s", decimals, bytes, units[unit]);
  return text;
}

class Progress {
 public:
  /// `done` was finished before this run, so it does not count towards the rate. `what` is counted.
  Progress(std::uint64_t done, std::uint64_t total, const char* what = "records")
      : begun_at_(done), total_(total), what_(what), printed_tenths_(tenths(done)) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);  // The last line replaces it.
  }

  /// Call it as often as you like. `bytes` is the amount of this run.
  void to(std::uint64_t done, std::uint64_t bytes) {
    const auto now = Clock::now();
    if (terminal_ ? drawn_ && done < total_ && now - last_ < std::chrono::milliseconds(100)
                  : tenths(done) == printed_tenths_)
      return;
    last_ = now;
    printed_tenths_ = tenths(done);
    drawn_ = terminal_;
    std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", text(done, bytes).c_str());
    std::fflush(stderr);
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t tenths(std::uint64_t done) const { return total_ == 0 ? 10 : done * 10 / total_; }

  std::string text(std::uint64_t done, std::uint64_t bytes) const {
    const double elapsed = seconds();
    const double rate = elapsed > 0 ? static_cast<double>(done - begun_at_) / elapsed : 0;
    std::string line = grouped(done) + " of " + grouped(total_) + " " + what_ + ", " +
                       in_bytes(elapsed > 0 ? static_cast<double>(bytes) / elapsed : 0) + "/s";
    if (rate > 0)
      line += ", " +
              grouped(static_cast<std::uint64_t>(
                  std::llround(static_cast<double>(total_ - done) / rate))) +
              " s left";
    return line;
  }

  const std::uint64_t begun_at_, total_;
  const char* const what_;
  const Clock::time_point start_ = Clock::now();
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  Clock::time_point last_{};
  std::uint64_t printed_tenths_;
};

}  // namespace pack
