// SPDX-License-Identifier: Apache-2.0
#pragma once

// Decides whether the decoding of an image may continue. libjpeg asks while it decodes, so
// may_go_on does not throw.

#include <ctime>

#include <cmath>
#include <cstdint>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/version.hpp>
#include <stop_token>
#include <string>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::images {

class DecodeWatch {
 public:
  explicit DecodeWatch(const JpegOptions& options)
      : max_scans_(options.max_scans),
        max_seconds_(options.max_seconds),
        interrupted_(options.interrupted) {}

  /// Call this before an image is read.
  void start(std::stop_token stop) {
    stop_ = std::move(stop);
    start_ = thread_seconds();
    questions_ = 0;
    end_ = End::none;
  }

  bool may_go_on(int scan) noexcept {
    constexpr int kBetweenClocks = 16;  // Reading the clock is a system call.
    if (stop_.stop_requested() || (interrupted_ != nullptr && interrupted_()))
      end_ = End::stopped;
    else if (scan > max_scans_)
      end_ = End::too_many_scans;
    else if (questions_++ % kBetweenClocks == 0 && thread_seconds() - start_ > max_seconds_)
      end_ = End::too_long;
    return end_ == End::none;
  }

  /// Throws if may_go_on has returned false.
  void require_no_end() const {
    if (end_ == End::stopped) throw DecodeStopped();
    if (end_ == End::too_many_scans)
      throw ImageError("too many scans: more than " + std::to_string(max_scans_));
    if (end_ == End::too_long)
      throw ImageError("decoding takes too long: more than " +
                       std::to_string(std::lround(max_seconds_)) + " s");
  }

 private:
  enum class End { none, stopped, too_many_scans, too_long };

  /// It measures CPU time, because the load of the machine must not decide what is decoded.
  static double thread_seconds() noexcept {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  const int max_scans_;
  const double max_seconds_;
  bool (*const interrupted_)();
  std::stop_token stop_;
  double start_ = 0;
  std::uint64_t questions_ = 0;
  End end_ = End::none;
};

}  // namespace penstock::images
