// SPDX-License-Identifier: Apache-2.0
#pragma once

// Flat: the progress of a long run, in which nothing may grow after its first tenth.
//
//   Flat flat("256 workers", batches);
//   for (...) flat.reach(done);        // prints a line at each tenth
//   flat.finish();                     // throws when something has grown

#include <time.h>

#include <cstdint>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "../soak/vitals.hpp"

namespace penstock::test {

class Flat {
 public:
  Flat(std::string name, std::uint64_t total, Chance chance = {})
      : name_(std::move(name)), total_(total), chance_(chance) {}

  /// `done` of the total are done. The vitals at the first tenth are those to compare with.
  void reach(std::uint64_t done) {
    if (done * 10 < total_ * tenths_) return;
    const double seconds = now() - began_;
    const Vitals here = vitals();
    if (!warm_) warm_ = here;
    std::cout << name_ << ": " << done << " of " << total_ << ", "
              << static_cast<std::uint64_t>(static_cast<double>(done) / seconds) << " a second, "
              << here << std::endl;
    while (done * 10 >= total_ * tenths_) ++tenths_;
  }

  /// Throws std::runtime_error when something is more than after the first tenth, and stays so: a
  /// worker that ends has a file open for a moment.
  void finish() const {
    constexpr double kPatience = 2;  // seconds
    if (!warm_) throw std::runtime_error(name_ + ": ended before its first tenth");
    const double begun = now();
    while (true) {
      const std::string growth = growth_between(*warm_, vitals(), chance_);
      if (growth.empty()) return;
      if (now() - begun > kPatience) throw std::runtime_error(name_ + ": not flat: " + growth);
      std::this_thread::yield();
    }
  }

 private:
  /// In seconds, by a clock that no scenario meddles with.
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }

  std::string name_;
  std::uint64_t total_, tenths_ = 1;
  Chance chance_;
  double began_ = now();
  std::optional<Vitals> warm_;
};

}  // namespace penstock::test
