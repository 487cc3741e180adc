// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which images the CPU decodes of those that an engine takes: a share of them, by their seeds.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>

namespace penstock::images {

class DecodeShare {
 public:
  explicit DecodeShare(double share) : share_(share) {}

  double value() const { return share_; }

  /// Whether the CPU decodes the image with this seed: a pure function of it and of the share.
  bool draws_cpu(std::uint64_t seed) const {
    // Other bits than those that crops draw with the same seed.
    const std::uint64_t bits = penstock::detail::mix64(seed ^ 0x6a70'6567'2d73'706c);
    return static_cast<double>(bits >> 11) * 0x1p-53 < share_;
  }

  /// What a decoder took for its images of a batch.
  struct Took {
    std::size_t images;
    std::chrono::duration<double> time;

    double rate() const { return static_cast<double>(images) / time.count(); }
    bool is_measured() const { return images >= 4 && time.count() > 0; }
  };

  /// Moves the share towards that with which both take the same time. Both rates stay measurable.
  void adapt(const Took& cpu, const Took& engine) {
    constexpr double kLeast = 0.02, kMost = 0.98, kStep = 0.2;
    if (cpu.is_measured() && engine.is_measured())
      share_ += kStep * (cpu.rate() / (cpu.rate() + engine.rate()) - share_);
    share_ = std::clamp(share_, kLeast, kMost);
  }

 private:
  double share_;
};

}  // namespace penstock::images
