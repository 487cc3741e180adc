// SPDX-License-Identifier: Apache-2.0

// ShareFinder over pipelines that are simulated: time is a number, and nothing is measured.

#include "share_finder.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <random>
#include <utility>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

/// Images a second that a pipeline delivers with a share.
using Rate = std::function<double(double share)>;

struct Simulated {
  double share = 0;      ///< of the batches at the end
  double rate = 0;       ///< of all batches
  double last_rate = 0;  ///< of the second half
  double by_cpu = 0;     ///< share of all images
};

/// A machine with other work: for some seconds all is slower, by up to `depth`.
class OtherWork {
 public:
  OtherWork(std::uint32_t seed, double depth) : random_(seed), depth_(depth) {}
  double factor() {
    if (left_-- <= 0) {
      left_ = 5 + static_cast<int>(random_() % 40);
      factor_ = 1 - depth_ * static_cast<double>(random_() % 1001) / 1000;
    }
    return factor_;
  }

 private:
  std::mt19937 random_;
  double depth_, factor_ = 1;
  int left_ = 0;
};

/// Batches of 512. `ahead` have their shares already when one ends; each takes up to `noise` more
/// or less than its rate says, and every `pause_every`th one second more.
Simulated simulate(ShareFinder& finder, const Rate& rate, int batches, double noise = 0.02,
                   int ahead = 5, int pause_every = 0) {
  static double time = 0;  // It goes on where a finder is used again.
  std::mt19937 random(7);
  std::deque<double> shares(static_cast<std::size_t>(ahead), finder.share());
  const double begin = time;
  double half = time, by_cpu = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const double share = shares.front(),
                 spread = 1 + noise * (static_cast<double>(random() % 2001) / 1000 - 1);
    shares.pop_front();
    shares.push_back(finder.share());
    time += 512 / rate(share) * spread;
    if (pause_every > 0 && batch % pause_every == pause_every - 1) time += 1;
    by_cpu += share;
    finder.add(512, ShareFinder::Time(time));
    if (batch + 1 == batches / 2) half = time;
  }
  return {shares.back(), 512 * batches / (time - begin),
          512 * (batches - batches / 2) / (time - half), by_cpu / batches};
}

/// Two decoders that work at the same time, and a consumer: the slowest one limits.
Rate limits(double engines, double cpu, double consumer) {
  return [=](double share) {
    double rate = consumer;
    if (share < 1) rate = std::min(rate, engines / (1 - share));
    if (share > 0) rate = std::min(rate, cpu / share);
    return rate;
  };
}

TEST_CASE("ShareFinder leaves everything to engines that keep up", "[images][share_finder]") {
  ShareFinder finder;
  const Simulated found = simulate(finder, limits(30'000, 12'000, 22'000), 4'000);
  CHECK(found.share == 0);
  CHECK(found.by_cpu < 0.005);
  CHECK(found.rate > 0.995 * 22'000);
}

TEST_CASE("ShareFinder leaves everything to the engines where the CPU takes more than it gives",
          "[images][share_finder]") {
  // As measured on an H100: 21,569 images/s by the engines alone, 16,375 with a share of 0.35.
  const double slope = GENERATE(0.1, 0.69, 3.0);
  ShareFinder finder;
  const Simulated found = simulate(
      finder, [=](double share) { return 21'569 * (1 - slope * share); }, 4'000);
  CHECK(found.share <= 0.05);
  CHECK(found.rate > 0.99 * 21'569);
}

TEST_CASE("ShareFinder finds the share with which both together are the fastest",
          "[images][share_finder]") {
  const auto [engines, cpu] = GENERATE(std::pair(10'000.0, 10'000.0), std::pair(14'000.0, 6'000.0),
                                       std::pair(20'000.0, 4'000.0), std::pair(3'000.0, 12'000.0));
  ShareFinder finder;
  const Simulated found = simulate(finder, limits(engines, cpu, 1e6), 4'000);
  CHECK(found.last_rate > 0.93 * (engines + cpu));
  CHECK(found.last_rate > std::max(engines, cpu));
}

TEST_CASE("ShareFinder takes no more of the CPU than the consumer needs",
          "[images][share_finder]") {
  ShareFinder finder;
  const Simulated found = simulate(finder, limits(20'000, 12'000, 22'000), 4'000);
  CHECK(found.last_rate > 0.97 * 22'000);
  CHECK(found.by_cpu < 0.25);  // 0.1 is enough, 0.375 the most that the CPU could take.
}

TEST_CASE("ShareFinder gives everything to the CPU beside engines that are of no use",
          "[images][share_finder]") {
  ShareFinder finder;
  const Simulated found = simulate(finder, limits(100, 12'000, 1e6), 4'000);
  CHECK(found.share > 0.9);
  CHECK(found.last_rate > 0.9 * 12'000);
}

TEST_CASE("ShareFinder begins anew when the consumer becomes another", "[images][share_finder]") {
  ShareFinder finder;
  CHECK(simulate(finder, limits(14'000, 6'000, 10'000), 4'000).share == 0);
  const Simulated found = simulate(finder, limits(14'000, 6'000, 1e6), 4'000);
  CHECK(found.last_rate > 0.93 * 20'000);
  CHECK(simulate(finder, limits(14'000, 6'000, 10'000), 4'000).share < 0.1);
}

TEST_CASE("ShareFinder: pauses of the consumer are not taken for a share's work",
          "[images][share_finder]") {
  const int every = GENERATE(40, 90, 250);
  ShareFinder finder;
  const Simulated found = simulate(
      finder, [](double share) { return 21'569 * (1 - 0.69 * share); }, 4'000, 0.02, 5, every);
  CHECK(found.by_cpu < 0.05);
}

TEST_CASE("ShareFinder: other work on the machine is not taken for a share's work",
          "[images][share_finder]") {
  const double slope = GENERATE(0.3, 1.0, 2.0);  // With a share of 0.05: 1.5, 5 and 10 % less.
  const double depth = GENERATE(0.05, 0.1, 0.2);
  double with = 0, without = 0, by_cpu = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const auto rate_of = [&](OtherWork& work) {
      return [&](double share) { return 30'000 * (1 - slope * share) * work.factor(); };
    };
    ShareFinder finder;
    OtherWork work(seed, depth), same(seed, depth);
    const Simulated found = simulate(finder, rate_of(work), 2'000);
    with += found.rate;
    by_cpu += found.by_cpu / 20;
    ShareFinder unused;
    const Rate rate = rate_of(same);
    without += simulate(
                   unused, [&](double) { return rate(0); }, 2'000)
                   .rate;
  }
  INFO("slope " << slope << ", depth " << depth << ", by the CPU " << by_cpu);
  CHECK(with > 0.98 * without);
}

TEST_CASE("ShareFinder: the first batches are by the engines alone", "[images][share_finder]") {
  ShareFinder finder;
  for (int i = 0; i < ShareFinder::kSettle + ShareFinder::kWindow - 1; ++i) {
    finder.add(512, ShareFinder::Time(i));
    CHECK(finder.share() == 0);
  }
  finder.add(512, ShareFinder::Time(1e3));
  CHECK(finder.share() > 0);
}

TEST_CASE("is_drawn_for_cpu: a share of the seeds, and more of them with a larger share",
          "[images][share_finder]") {
  int few = 0, many = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    CHECK_FALSE(is_drawn_for_cpu(seed, 0));
    CHECK(is_drawn_for_cpu(seed, 1));
    few += is_drawn_for_cpu(seed, 0.2);
    many += is_drawn_for_cpu(seed, 0.6);
    if (is_drawn_for_cpu(seed, 0.2)) CHECK(is_drawn_for_cpu(seed, 0.6));
  }
  CHECK(std::abs(few - 2'000) < 200);
  CHECK(std::abs(many - 6'000) < 200);
}

}  // namespace
}  // namespace penstock::images
