// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arrivals: when the requests of an open loop arrive, whatever becomes of them: times from the
// start of a run, a pure function of rate and seed.
//
//   Arrivals arrivals(200.0, ArrivalKind::poisson, 7);
//   const std::chrono::nanoseconds first = arrivals.next();

#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>

namespace resnet::latency {

/// poisson: independent of each other, as those of many clients; uniform: one like the other.
enum class ArrivalKind { poisson, uniform };

class Arrivals {
 public:
  /// `rate`: requests a second. Throws std::invalid_argument unless it is more than 0.
  Arrivals(double rate, ArrivalKind kind, std::uint64_t seed)
      : mean_gap_(1e9 / rate), kind_(kind), random_(seed) {
    if (!(rate > 0)) throw std::invalid_argument("Arrivals: the rate must be more than 0");
  }

  /// Never before the one before.
  std::chrono::nanoseconds next() {
    // From 2^-53 to 1; standard distributions differ from library to library.
    const double uniform = std::ldexp(static_cast<double>((random_() >> 11) + 1), -53);
    at_ += kind_ == ArrivalKind::uniform ? mean_gap_ : -std::log(uniform) * mean_gap_;
    return std::chrono::nanoseconds(std::llround(at_));
  }

 private:
  double mean_gap_;  // nanoseconds
  ArrivalKind kind_;
  std::mt19937_64 random_;
  double at_ = 0;
};

}  // namespace resnet::latency
