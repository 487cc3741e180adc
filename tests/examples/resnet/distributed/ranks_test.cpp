// SPDX-License-Identifier: Apache-2.0

// One of several processes that train a network together: ranks_test.py starts them all with the
// same case. Each has its part of a batch.

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <penstock/ranks.hpp>
#include <penstock/step_graph.hpp>
#include <string>
#include <vector>

#include "../../../../examples/resnet/distributed/data_parallel.hpp"
#include "../training.hpp"
#include "../vectors.hpp"
#include "support/catch.hpp"

namespace resnet::test {
namespace {

constexpr std::int64_t kImages = 8, kClasses = 10;
constexpr Extents kImage{1, 3, 16, 16};
const BucketOptions kManyBuckets{16 << 10, 64 << 10};

Extents images(std::int64_t n) {
  return {n, kImage.c, kImage.h, kImage.w};
}

/// The part of what all ranks have that belongs to this one.
template <class T>
std::vector<T> part_of(const std::vector<T>& all, const DataParallel& ranks) {
  const auto size = static_cast<std::int64_t>(all.size()) / ranks.world_size();
  const auto first = all.begin() + ranks.rank() * size;
  return {first, first + size};
}

struct RankOptions {
  bool synchronised = false;
  bool loss_scale = false;
  bool graph = false;  // from the second step on
};

class Rank {
 public:
  explicit Rank(const RankOptions& options)
      : options_(options),
        ranks(penstock::Ranks::from_environment(),
              {.synchronised_batch_norm = options.synchronised, .buckets = kManyBuckets}),
        training(ranks.network_options({.architecture = architecture_of("resnet8", kClasses),
                                        .images = images(kImages / ranks.world_size()),
                                        .loss_scale = options.loss_scale,
                                        .initial_loss_scale = 1024})) {
    ranks.share(training.network, stream());
  }

  void set_batch(std::uint64_t seed) {
    training.set_batch(part_of(test_images(images(kImages), seed), ranks),
                       part_of(test_labels(kImages, kClasses), ranks));
  }

  /// The metrics of all ranks.
  Metrics step(const SgdOptions& sgd) {
    const auto queue = [&] {
      training.network.clear_metrics(stream());
      training.forward(training.network.input().n);
      ranks.backward(training.network, stream());
      training.network.step(sgd, stream());
    };
    if (options_.graph && steps_++ > 0)
      graphs_.launch_numbered(0, stream(), queue);
    else
      queue();
    ranks.synchronize(stream());
    return training.metrics();
  }

  /// All ranks' states are the same, but for the statistics where each has its own.
  void check_agreement() {
    NetworkState state = training.state();
    if (!options_.synchronised) state.statistics.clear();
    const std::string mine = fingerprint(state) + " " + std::to_string(state.step) + " " +
                             std::to_string(state.loss_scale.skipped) + " " +
                             std::to_string(state.loss_scale.scale);
    CHECK_NOTHROW(ranks.agree({{"state", mine}}));
  }

  cudaStream_t stream() { return training.stream.get(); }

 private:
  const RankOptions options_;

 public:
  DataParallel ranks;
  Training training;

 private:
  std::int64_t steps_ = 0;
  penstock::StepGraph graphs_;
};

/// Ten steps, as vectors_test.cpp has them of one process.
void compare(const std::string& name, bool synchronised, bool graph) {
  const Comparison comparison(name, Precision::fp32);
  Rank rank({.synchronised = synchronised, .graph = graph});
  rank.set_batch(comparison.batch_seed());
  const ParameterTable& table = rank.training.network.table();
  std::vector<std::int64_t> counts, channels;
  for (const Parameter& parameter : table.parameters()) counts.push_back(parameter.count());
  for (const Statistic& statistic : table.statistics()) channels.push_back(statistic.channels);

  SgdOptions sgd = test_sgd;
  sgd.schedule.base = comparison.rate();
  Values losses;
  for (int step = 0; step < 10; ++step) {
    const Metrics metrics = rank.step(sgd);
    REQUIRE(metrics.samples == kImages);
    losses.push_back(static_cast<double>(metrics.loss) / kImages);
    if (step > 0) continue;
    comparison.check("gradients", digests(table, rank.training.network.gradients(rank.stream())),
                     counts, false);
  }
  comparison.check("losses", losses, true);
  const NetworkState state = rank.training.state();
  comparison.check("parameters", digests(table, state.parameters), counts, true);
  rank.check_agreement();
  rank.ranks.share_statistics(rank.training.network, rank.stream());
  comparison.check("statistics", statistic_digests(table, rank.training.state().statistics),
                   channels, true);
}

TEST_CASE("ranks train as PyTorch's DDP", "[.ddp]") {
  const std::string ranks = std::to_string(penstock::Ranks::from_environment().world_size);
  compare("resnet8-ddp" + ranks, false, false);
}

TEST_CASE("ranks train as PyTorch's DDP, in graphs", "[.ddp_graph]") {
  const std::string ranks = std::to_string(penstock::Ranks::from_environment().world_size);
  compare("resnet8-ddp" + ranks, false, true);
}

TEST_CASE("with synchronised batch norm they train as PyTorch with the whole batch", "[.sync]") {
  compare("resnet8", true, false);
}

/// The largest difference, relative to the largest number.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / largest;
}

// A sum over a batch is one over its parts, but for the rounding of floats. Measured behind four
// steps: parameters 4e-8, momenta 2e-7, statistics 7e-8; where batch norm was not synchronised
// 2e-4, 3e-2 and 1e-2.
constexpr double kRounding = 1e-6;

TEST_CASE("with synchronised batch norm they train as one rank with the whole batch", "[.whole]") {
  Rank rank({.synchronised = true, .graph = true});
  rank.set_batch(1);
  Training whole({.architecture = architecture_of("resnet8", kClasses), .images = images(kImages)});
  for (int step = 0; step < 4; ++step) {
    const Metrics of_ranks = rank.step(test_sgd);
    whole.network.clear_metrics(whole.stream.get());
    whole.step();
    const Metrics of_one = whole.metrics();
    CHECK(of_ranks.samples == of_one.samples);
    CHECK(of_ranks.correct == of_one.correct);
    CHECK(of_ranks.loss == Approx(of_one.loss).epsilon(1e-6));
  }
  const NetworkState ours = rank.training.state(), theirs = whole.state();
  INFO("parameters " << distance(ours.parameters, theirs.parameters) << ", momenta "
                     << distance(ours.momenta, theirs.momenta) << ", statistics "
                     << distance(ours.statistics, theirs.statistics));
  CHECK(distance(ours.parameters, theirs.parameters) < kRounding);
  CHECK(distance(ours.momenta, theirs.momenta) < kRounding);
  CHECK(distance(ours.statistics, theirs.statistics) < kRounding);
  rank.check_agreement();
}

TEST_CASE("an image that is not finite on one rank makes all skip the step", "[.overflow]") {
  Rank rank({.loss_scale = true, .graph = true});
  const auto last = rank.ranks.world_size() - 1;
  for (int step = 0; step < 6; ++step) {
    const bool bad = step == 2 || step == 3;
    rank.set_batch(static_cast<std::uint64_t>(step) + 1);
    if (bad && rank.ranks.rank() == last) {
      std::vector<float> broken(size(images(kImages / rank.ranks.world_size()).count()));
      broken[5] = std::numeric_limits<float>::infinity();
      rank.training.set_batch(broken, part_of(test_labels(kImages, kClasses), rank.ranks));
    }
    const Metrics metrics = rank.step(test_sgd);
    CHECK(metrics.skipped == (bad ? 1 : 0));
    CHECK(std::isfinite(metrics.loss) == !bad);
    rank.check_agreement();
  }
  const NetworkState state = rank.training.state();
  CHECK(state.step == 4);
  CHECK(state.loss_scale.skipped == 2);
  CHECK(state.loss_scale.scale == 256);
}

TEST_CASE("ranks begin with what rank 0 has", "[.start]") {
  Rank rank({});
  std::vector<float> parameters = test_parameters(rank.training.network.table());
  for (float& parameter : parameters) parameter += static_cast<float>(rank.ranks.rank());
  rank.training.start(parameters);
  rank.ranks.share(rank.training.network, rank.stream());
  CHECK(rank.training.state().parameters == test_parameters(rank.training.network.table()));
}

}  // namespace
}  // namespace resnet::test
