// SPDX-License-Identifier: Apache-2.0
#pragma once

// Progress: how far a long piece of work is, on the standard error output. A bar that is redrawn in
// place where that is a terminal; elsewhere (a log, a pipe) a plain line at every tenth of the
// work.
//
//   examples::Progress progress("records", total);
//   progress.to(done);                        // as often as you like
//   progress.to(done, [&] { return speed(); });   // asked only when something is printed

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
    to(done, [] { return std::string(); });
  }
  /// `note` returns what is to be said behind the numbers.
  template <class Note>
  void to(std::uint64_t done, Note&& note) {
    if (terminal_ && is_time_to_draw(done))
      draw_bar(done, note());
    else if (!terminal_ && is_another_tenth(done))
      std::fprintf(stderr, "%s\n", text(done, note()).c_str());
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_time_to_draw(std::uint64_t done) {
    const Clock::time_point now = Clock::now();
    if (drawn_ && done < total_ && now - last_ < std::chrono::milliseconds(50)) return false;
    last_ = now;
    return true;
  }

  void draw_bar(std::uint64_t done, const std::string& note) {
    drawn_ = true;
    constexpr std::uint64_t cells = 40;
    const std::uint64_t full = total_ == 0 ? cells : done * cells / total_;
    constexpr const char* clear_rest = "\x1b[K";  // of the line, where the last text was longer
    std::fprintf(stderr, "\r[%s%s] %s%s", std::string(full, '#').c_str(),
                 std::string(cells - full, '.').c_str(), text(done, note).c_str(), clear_rest);
    std::fflush(stderr);
  }

  bool is_another_tenth(std::uint64_t done) {
    const std::uint64_t tenths = total_ == 0 ? 10 : done * 10 / total_;
    return tenths != std::exchange(printed_tenths_, tenths);
  }

  std::string text(std::uint64_t done, const std::string& note) const {
    return std::to_string(done) + '/' + std::to_string(total_) + ' ' + unit_ +
           (note.empty() ? "" : ": " + note);
  }

  std::string unit_;
  std::uint64_t total_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  Clock::time_point last_{};
  std::uint64_t printed_tenths_ = 0;
};

}  // namespace examples
