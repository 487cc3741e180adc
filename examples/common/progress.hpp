// SPDX-License-Identifier: Apache-2.0
#pragma once

// Progress: how far a long piece of work is, on the standard error output. A bar that is redrawn in
// place where that is a terminal; elsewhere (a log, a pipe) a plain line at every tenth of the
// work.
//
//   examples::Progress progress("records", total);
//   progress.to(done);                        // as often as you like

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace examples {

class Progress {
 public:
  Progress(std::string unit, std::uint64_t total) : unit_(std::move(unit)), total_(total) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Leaves the terminal's cursor on a fresh line.
  ~Progress() {
    if (terminal_ && drawn_) std::fputc('\n', stderr);
  }

  void to(std::uint64_t done) {
    if (terminal_)
      draw_bar(done);
    else
      print_tenths(done);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void draw_bar(std::uint64_t done) {
    const Clock::time_point now = Clock::now();
    if (drawn_ && done < total_ && now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    drawn_ = true;
    constexpr std::uint64_t cells = 40;
    const std::uint64_t full = total_ == 0 ? cells : done * cells / total_;
    std::fprintf(stderr, "\r[%s%s] %llu/%llu %s", std::string(full, '#').c_str(),
                 std::string(cells - full, '.').c_str(), as_printed(done), as_printed(total_),
                 unit_.c_str());
    std::fflush(stderr);
  }

  void print_tenths(std::uint64_t done) {
    const std::uint64_t tenths = total_ == 0 ? 10 : done * 10 / total_;
    if (tenths == printed_tenths_) return;
    printed_tenths_ = tenths;
    std::fprintf(stderr, "%llu/%llu %s\n", as_printed(done), as_printed(total_), unit_.c_str());
  }

  static unsigned long long as_printed(std::uint64_t number) { return number; }

  std::string unit_;
  std::uint64_t total_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  Clock::time_point last_{};
  std::uint64_t printed_tenths_ = 0;
};

}  // namespace examples
