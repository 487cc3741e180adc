// SPDX-License-Identifier: Apache-2.0

// What a rank does with its gradients, its metrics and its end, beside ranks that all have the same
// (mirror.hpp): then several train like one, to the bit.

#include "../../../../examples/resnet/distributed/data_parallel.hpp"

#include <cstddef>
#include <memory>
#include <penstock/step_graph.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../training.hpp"
#include "mirror.hpp"
#include "support/catch.hpp"

namespace resnet {
namespace {

test::Mirror* last = nullptr;  // of the last one that was made

}  // namespace

/// What a DataParallel of this program gets.
std::unique_ptr<Communicator> make_communicator(const penstock::Ranks& ranks,
                                                const CommunicatorOptions&) {
  auto mirror = std::make_unique<test::Mirror>(ranks.world_size);
  last = mirror.get();
  return mirror;
}

}  // namespace resnet

namespace resnet::test {
namespace {

const NetworkOptions small{.architecture = architecture_of("resnet8", 10),
                           .images = {4, 3, 16, 16}};
constexpr std::size_t kKilobyte = 1024;

penstock::Ranks first_of(int world_size) {
  penstock::Ranks ranks;
  ranks.world_size = ranks.local_size = world_size;
  return ranks;
}

/// A network on one of several ranks that all have the same batch.
struct Rank {
  explicit Rank(int world_size, const BucketOptions& buckets = {},
                const NetworkOptions& options = small)
      : parallel(first_of(world_size), {.buckets = buckets}),
        training(parallel.network_options(options)) {
    parallel.share(training.network, training.stream.get());
    last->sums.clear();
  }

  void step() {
    training.network.clear_metrics(training.stream.get());
    training.forward(training.network.input().n);
    parallel.backward(training.network, training.stream.get());
    training.network.step(test_sgd, training.stream.get());
  }

  DataParallel parallel;
  Training training;
};

TEST_CASE("ranks with the same batch train like one, to the bit", "[resnet][distributed]") {
  const int ranks = GENERATE(1, 2, 4);
  const std::size_t bucket = GENERATE(std::size_t{0}, 16 * kKilobyte, SIZE_MAX);
  const bool graph = GENERATE(false, true);
  Training alone(small);
  Rank rank(ranks, {bucket, bucket});
  penstock::StepGraph graphs;
  for (int i = 0; i < 4; ++i) {
    alone.network.clear_metrics(alone.stream.get());
    alone.step();
    if (graph)
      graphs.launch_numbered(0, rank.training.stream.get(), [&] { rank.step(); });
    else
      rank.step();
  }
  CHECK(same_bits(rank.training.state(), alone.state()));
  const Metrics of_all = rank.training.metrics(), of_one = alone.metrics();
  CHECK(of_all.samples == static_cast<float>(ranks) * of_one.samples);
  CHECK(of_all.loss == static_cast<float>(ranks) * of_one.loss);
  CHECK(of_all.correct == static_cast<float>(ranks) * of_one.correct);
  CHECK(rank.training.network.gradients(rank.training.stream.get()) ==
        alone.network.gradients(alone.stream.get()));
}

/// What was summed of the weights' gradients, or of the others: lengths, in order. Each range ends
/// where the one before began.
template <class T>
std::vector<std::int64_t> ranges_in(const T* slab, std::int64_t elements,
                                    const std::vector<Mirror::Sum>& sums) {
  std::vector<std::int64_t> lengths;
  const T* end = slab + elements;
  for (const Mirror::Sum& sum : sums) {
    const auto* const begin = static_cast<const T*>(sum.values);
    if (begin < slab || begin >= slab + elements) continue;
    CHECK(begin + sum.count == end);
    end = begin;
    lengths.push_back(sum.count);
  }
  CHECK(end == slab);
  return lengths;
}

TEST_CASE("buckets cover all gradients once, from the last to the first", "[resnet][distributed]") {
  const std::size_t first = GENERATE(std::size_t{0}, kKilobyte, 64 * kKilobyte);
  const std::size_t others = GENERATE(std::size_t{0}, 40 * kKilobyte, SIZE_MAX);
  Rank rank(2, {first, others});
  rank.step();
  const Gradients gradients = rank.training.network.gradient_memory();
  const auto weights =
      ranges_in(static_cast<const float*>(gradients.weights), gradients.sizes.weights, last->sums);
  const auto rest = ranges_in(gradients.others, gradients.sizes.others, last->sums);
  CHECK(weights.size() == rest.size());
  REQUIRE(!weights.empty());
  for (std::size_t i = 0; i + 1 < weights.size(); ++i)
    CHECK(static_cast<std::size_t>(weights[i]) * sizeof(float) >= (i == 0 ? first : others));
  if (first == 0 && others == 0) CHECK(weights.size() == 5);  // fc, three blocks, the stem
  if (others == SIZE_MAX && first > 0) CHECK(weights.size() == 2);
  last->sums.clear();
  rank.step();  // The next step has the same.
  CHECK(ranges_in(static_cast<const float*>(gradients.weights), gradients.sizes.weights,
                  last->sums) == weights);
}

TEST_CASE("the buckets of ResNet-50 are those that docs/measured/many-gpus.md reckons with",
          "[resnet][distributed]") {
  // Elements have four bytes here and two there, and so have the limits; and no channel is added to
  // the first convolution's input.
  const std::size_t megabyte = kKilobyte * kKilobyte;
  Rank rank(2, {2 * megabyte, 50 * megabyte},
            {.architecture = architecture_of("resnet50", 10), .images = {1, 3, 32, 32}});
  rank.step();
  std::vector<std::int64_t> weights, others;
  // The first two sums are the metrics and the wish to end.
  for (std::size_t i = 2; i < last->sums.size(); i += 2) {
    weights.push_back(last->sums[i].count);
    others.push_back(last->sums[i + 1].count);
  }
  CHECK(weights == std::vector<std::int64_t>{4'476'928, 13'828'096, 5'173'504 - 64 * 49});
  CHECK(others == std::vector<std::int64_t>{6'208, 25'600, 21'376});
}

TEST_CASE("the backward pass tells only of gradients that are there", "[resnet][distributed]") {
  Training training(small), told(small);
  training.gradients();
  const std::vector<float> right = training.network.gradients(training.stream.get());
  told.forward(4);
  const Gradients memory = told.network.gradient_memory();
  std::size_t times = 0;
  std::vector<float> seen(right.size());
  told.network.backward(told.stream.get(), [&](const GradientOffsets& from) {
    ++times;
    const std::vector<float> now = told.network.gradients(told.stream.get());
    const std::int64_t weights = memory.sizes.weights;
    for (std::int64_t i = from.weights; i < weights; ++i) CHECK(now[size(i)] == right[size(i)]);
    for (std::int64_t i = from.others; i < memory.sizes.others; ++i)
      CHECK(now[size(weights + i)] == right[size(weights + i)]);
  });
  CHECK(times == 5);
}

TEST_CASE("a gradient that is not finite on one rank skips the step, once",
          "[resnet][distributed]") {
  NetworkOptions scaled = small;
  scaled.loss_scale = true;
  Rank rank(2, {kKilobyte, kKilobyte}, scaled);
  const NetworkState before = rank.training.state();
  rank.training.network.clear_metrics(rank.training.stream.get());
  rank.training.forward(4);
  last->overflowing = rank.training.network.gradient_memory().weights;
  rank.parallel.backward(rank.training.network, rank.training.stream.get());
  rank.training.network.step(test_sgd, rank.training.stream.get());
  const NetworkState after = rank.training.state();
  CHECK(same_bits(after.parameters, before.parameters));
  CHECK(after.step == 0);
  CHECK(after.loss_scale.skipped == 1);
  CHECK(after.loss_scale.scale == before.loss_scale.scale / 2);
  const Metrics metrics = rank.training.metrics();
  CHECK(metrics.skipped == 1);
  CHECK(metrics.samples == 8);
}

TEST_CASE("ranks that differ are told apart by rank and option", "[resnet][distributed]") {
  DataParallel parallel(first_of(3), {});
  const Facts facts{{"--batch", "256"}, {"--seed", "1"}};
  CHECK_NOTHROW(parallel.agree(facts));
  const auto error = [&](const std::string& instead_of, const std::string& said) {
    last->instead_of = instead_of;
    last->said = said;
    try {
      parallel.agree(facts);
    } catch (const std::invalid_argument& wrong) {
      return std::string(wrong.what());
    }
    return std::string();
  };
  CHECK(error("256", "128").starts_with("rank 1 has another --batch than rank 0: 128, not 256;"));
  CHECK(error("--seed\n1", "--seed\n7").find("another --seed than rank 0: 7, not 1") !=
        std::string::npos);
  CHECK(error("--seed\n1\n", "").find("another --seed than rank 0: (nothing), not 1") !=
        std::string::npos);
  CHECK(error("--sync-batch-norm\noff", "--sync-batch-norm\non").find("--sync-batch-norm") !=
        std::string::npos);
  CHECK(error("--seed", "--more\n2\n--seed").find("another program") != std::string::npos);
}

TEST_CASE("rank 0's state is everybody's, to the last byte", "[resnet][distributed]") {
  DataParallel parallel(first_of(2), {});
  Training training(parallel.network_options(small));
  parallel.share(training.network, training.stream.get());
  std::int64_t bytes = 0;
  for (const Mirror::Sum& block : last->broadcasts) bytes += block.count;
  const ParameterTable& table = training.network.table();
  CHECK(bytes ==
        static_cast<std::int64_t>(sizeof(float)) * (2 * table.all() + table.statistics_size()) +
            static_cast<std::int64_t>(sizeof(std::int64_t) + sizeof(LossScale)));
}

/// A step that does what StepsUnderWay asks of it, with the sum over `ranks`.
void queue_step(StepsUnderWay& steps, Communicator& communicator, cudaStream_t stream) {
  communicator.all_reduce(steps.wish(), 1, Precision::fp32, stream);
  steps.after(stream);
}

TEST_CASE("an interrupt ends the steps behind one that all ranks know", "[resnet][distributed]") {
  const auto interrupted = GENERATE(std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{5});
  Mirror communicator(2);
  StepsUnderWay steps(communicator);
  penstock::Stream stream;
  std::uint64_t step = 0;
  for (; step < 100 && steps.before(step >= interrupted, stream.get()); ++step)
    queue_step(steps, communicator, stream.get());
  CHECK(step == interrupted + StepsUnderWay::kMost);
  CHECK(communicator.checks == static_cast<int>(step) + 1);
  CHECK(steps.finish(stream.get()));
}

TEST_CASE("an interrupt in the last steps is known at the end", "[resnet][distributed]") {
  const bool interrupt = GENERATE(false, true);
  Mirror communicator(2);
  StepsUnderWay steps(communicator);
  penstock::Stream stream;
  for (int step = 0; step < 7; ++step) {
    REQUIRE(steps.before(interrupt && step == 6, stream.get()));
    queue_step(steps, communicator, stream.get());
  }
  CHECK(steps.finish(stream.get()) == interrupt);
}

TEST_CASE("a rank alone ends at once", "[resnet][distributed]") {
  Mirror communicator(1);
  StepsUnderWay steps(communicator);
  penstock::Stream stream;
  CHECK(steps.before(false, stream.get()));
  CHECK(!steps.finish(stream.get()));
  CHECK(!steps.before(true, stream.get()));
  CHECK(steps.finish(stream.get()));
}

}  // namespace
}  // namespace resnet::test
