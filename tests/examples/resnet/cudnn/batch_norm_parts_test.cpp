// SPDX-License-Identifier: Apache-2.0

// Batch norm in parts on a GPU: ranks that have parts of a batch, all on this one, against the
// reference over the whole batch in double. No number is further away than
//
//   (2 u + 4 condition e) size
//
// u: the roundoff of what it is stored in; e: float's; size: that of the terms that it is a sum of,
// or of their sum; condition: 1 + |x| / deviation where a number depends on distances from the
// mean, which loses digits where that is far from 0.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../../../examples/resnet/ops/batch_norm_parts.hpp"
#include "accuracy.hpp"
#include "batch_norm_problem.hpp"

namespace resnet::test {
namespace {

using Floats = std::vector<float>;

double largest(const Values& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

Values doubles(const Floats& values) {
  return {values.begin(), values.end()};
}

void append(Values& values, const Values& more) {
  values.insert(values.end(), more.begin(), more.end());
}

/// One rank's part of the batch, and what it computes.
struct Rank {
  Rank(const Bench& bench, const Case& whole, const Operands& operands, int rank, int ranks)
      : extents{whole.extents.n / ranks, whole.extents.c, whole.extents.h, whole.extents.w},
        moments(channels(2)),
        sums(channels(2)),
        mean(channels()),
        inverse_deviation(channels()),
        gamma_gradient(channels()),
        beta_gradient(channels()),
        relu_bits(bench, extents),
        with_bits(whole.relu_bits) {
    const auto part = [&](const Values& values) {
      const auto begin = values.begin() + rank * extents.count();
      return bench.upload(Values(begin, begin + extents.count()));
    };
    x = part(operands.x), residual = part(operands.residual);
    y_gradient = part(operands.y_gradient), more = part(operands.more);
    y = bench.room(extents.count()), x_gradient = bench.room(extents.count());
    residual_gradient = bench.room(extents.count());
    gamma = bench.upload_as(as<float>(operands.gamma));
    beta = bench.upload_as(as<float>(operands.beta));
    running_mean = bench.upload_as(as<float>(operands.running_mean));
    running_variance = bench.upload_as(as<float>(operands.running_variance));
  }

  std::size_t channels(std::int64_t times = 1) const {
    return static_cast<std::size_t>(times * extents.c);
  }
  BatchNorm norm() const {
    BatchNorm norm;
    norm.gamma = gamma->data(), norm.beta = beta->data();
    norm.running_mean = running_mean->data(), norm.running_variance = running_variance->data();
    norm.mean = mean.data(), norm.inverse_deviation = inverse_deviation.data();
    norm.gamma_gradient = gamma_gradient.data(), norm.beta_gradient = beta_gradient.data();
    if (with_bits) norm.relu_bits = relu_bits.data();
    return norm;
  }
  const DeviceValues& gradient_of_x(const Case& of) const {
    return of.in_place ? *y_gradient : *x_gradient;
  }
  BatchNormOperands gradient_operands(const Case& of) const {
    return {x->data(),
            y->data(),
            y_gradient->data(),
            of.more ? more->data() : nullptr,
            gradient_of_x(of).data(),
            of.residual ? residual_gradient->data() : nullptr};
  }

  Extents extents;
  std::unique_ptr<DeviceValues> x, residual, y_gradient, more, y, x_gradient, residual_gradient;
  std::unique_ptr<DeviceArrayOf<float>> gamma, beta, running_mean, running_variance;
  DeviceArrayOf<float> moments, sums, mean, inverse_deviation, gamma_gradient, beta_gradient;
  ReluBits relu_bits;
  bool with_bits;
};

/// All ranks of a batch. They come together on the host.
class Ranks {
 public:
  Ranks(Bench& bench, const Case& of, const Operands& operands, int ranks)
      : bench_(bench), case_(of) {
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<Rank>(bench, of, operands, rank, ranks));
  }

  void forward() {
    Floats all;
    for (const auto& rank : ranks_) {
      parts().moments(rank->extents, rank->x->data(), rank->moments.data(), bench_.stream());
      const Floats mine = rank->moments.read();
      all.insert(all.end(), mine.begin(), mine.end());
    }
    const auto moments = bench_.upload_as(all);
    for (const auto& rank : ranks_) {
      parts().merge(rank->extents, size(), moments->data(), rank->norm(), bench_.stream());
      bench_.operations().batch_norm_apply(rank->extents, rank->x->data(), rank->norm(),
                                           case_.residual ? rank->residual->data() : nullptr,
                                           nullptr, case_.relu, rank->y->data(), bench_.stream());
    }
    REQUIRE_CUDA(cudaStreamSynchronize(bench_.stream()));  // before `moments` goes
  }

  void backward() {
    Floats sums(ranks_.front()->channels(2));
    for (const auto& rank : ranks_) {
      parts().gradient_sums(rank->extents, rank->gradient_operands(case_), rank->norm(), case_.relu,
                            rank->sums.data(), bench_.stream());
      const Floats mine = rank->sums.read();
      Floats own = rank->beta_gradient.read();
      const Floats gamma = rank->gamma_gradient.read();
      own.insert(own.end(), gamma.begin(), gamma.end());
      CHECK(own == mine);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += mine[i];
    }
    const auto all = bench_.upload_as(sums);
    for (const auto& rank : ranks_)
      parts().gradient(rank->extents, size(), rank->gradient_operands(case_), rank->norm(),
                       case_.relu, all->data(), bench_.stream());
    REQUIRE_CUDA(cudaStreamSynchronize(bench_.stream()));  // before `all` goes
    sums_ = doubles(sums);
  }

  Values y() const {
    Values all;
    for (const auto& rank : ranks_) append(all, bench_.download(*rank->y));
    return all;
  }

  /// Of the whole batch; what each rank has must be the same on all.
  Results<double> results() const {
    Results<double> all;
    all.y = y();
    for (const auto& rank : ranks_) {
      append(all.x_gradient, bench_.download(rank->gradient_of_x(case_)));
      if (case_.residual) append(all.residual_gradient, bench_.download(*rank->residual_gradient));
    }
    const auto same = [&](const auto& array_of) {
      const Floats first = array_of(*ranks_.front()).read();
      for (const auto& rank : ranks_) CHECK(array_of(*rank).read() == first);
      return doubles(first);
    };
    all.mean = same([](const Rank& rank) -> auto& { return rank.mean; });
    all.inverse_deviation = same([](const Rank& rank) -> auto& { return rank.inverse_deviation; });
    all.running_mean = same([](const Rank& rank) -> auto& { return *rank.running_mean; });
    all.running_variance = same([](const Rank& rank) -> auto& { return *rank.running_variance; });
    const auto half = sums_.begin() + case_.extents.c;
    all.beta_gradient.assign(sums_.begin(), half);
    all.gamma_gradient.assign(half, sums_.end());
    return all;
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }
  BatchNormParts& parts() { return bench_.operations().batch_norm_parts(); }

  Bench& bench_;
  Case case_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Values sums_;  // over all ranks: of beta, then of gamma
};

/// By the bound at the top.
void expect(const std::string& what, const Values& values, const Values& truth, Precision stored,
            double size, double condition = 1) {
  const double allowed =
      (2 * unit_roundoff(stored) + 4 * condition * unit_roundoff(Precision::fp32)) * size;
  REQUIRE(values.size() == truth.size());
  std::size_t far = 0, first = 0;
  for (std::size_t i = 0; i < truth.size(); ++i)
    if (!(std::abs(values[i] - truth[i]) <= allowed) && far++ == 0) first = i;  // NaN is far, too
  INFO(what << ": " << far << " of " << truth.size() << " are further than " << allowed
            << " away; number " << first << " is " << values[first] << ", not " << truth[first]);
  CHECK(far == 0);
}

void expect_all(const Settings& settings, const Case& of, double x, const Results<double>& values,
                const Results<double>& truth) {
  const double inverse = largest(truth.inverse_deviation), condition = 1 + x * inverse;
  const Precision single = Precision::fp32, stored = settings.precision;
  // Without fusion the normalised value and the arriving gradient are rounded.
  const Precision between = settings.fusion == Fusion::none ? stored : single;
  const double arriving = 3, gamma = 1.5;  // They are smaller.
  // Roundings of a sum's terms are not all in one direction.
  const auto [n, c, h, w] = of.extents;
  const double sums = arriving * std::sqrt(static_cast<double>(n * h * w));
  expect("y", values.y, truth.y, stored, gamma * 2 + largest(truth.y), condition);
  expect("mean", values.mean, truth.mean, single, x);
  expect("inverse deviation", values.inverse_deviation, truth.inverse_deviation, single, inverse,
         condition);
  expect("running mean", values.running_mean, truth.running_mean, single, 1 + x);
  expect("running variance", values.running_variance, truth.running_variance, single,
         largest(truth.running_variance), condition);
  expect("gradient of x", values.x_gradient, truth.x_gradient, stored, gamma * inverse * arriving,
         condition);
  expect("gradient of beta", values.beta_gradient, truth.beta_gradient, between, sums);
  expect("gradient of gamma", values.gamma_gradient, truth.gamma_gradient, between, 2 * sums,
         condition);
  if (of.residual)
    expect("gradient of the residual", values.residual_gradient, truth.residual_gradient, stored,
           arriving);
}

void check_parts(Bench& bench, const Case& of, int ranks) {
  INFO(of.extents.n << " x " << of.extents.c << " x " << of.extents.h << " x " << of.extents.w
                    << ", ranks " << ranks << ", residual " << of.residual << ", relu " << of.relu
                    << ", precision " << static_cast<int>(bench.settings().precision) << ", format "
                    << static_cast<int>(bench.settings().format) << ", fusion "
                    << static_cast<int>(bench.settings().fusion));
  REQUIRE(of.extents.n % ranks == 0);
  const Operands operands(bench, of);
  Ranks together(bench, of, operands, ranks);
  together.forward();
  together.backward();
  expect_all(bench.settings(), of, largest(operands.x), together.results(),
             in_double(of, bench.settings().format, operands, together.y()));
}

}  // namespace

TEST_CASE("batch norm in parts: ranks together have what the whole batch has", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  settings.fusion = GENERATE(Fusion::none, Fusion::elementwise);
  Bench bench(settings);
  check_parts(bench, {{16, 64, 16, 16}, true, true, true}, 1);
  check_parts(bench, {{16, 64, 16, 16}, true, true, true, true}, 2);
  check_parts(bench, {{16, 64, 16, 16}, true, true, true, true, 0, true}, 2);
  check_parts(bench, {{16, 64, 16, 16}}, 4);
  check_parts(bench, {{6, 1, 7, 5}, true, true, true}, 3);
  check_parts(bench, {{6, 3, 5, 3}, false, true, false, true}, 2);
  check_parts(bench, {{4, 64, 9, 7}, true, false, false}, 2);
  check_parts(bench, {{2, 65, 13, 11}, true, true, true, true}, 2);
  check_parts(bench, {{6, 65, 5, 3}, false, false, true}, 1);
  check_parts(bench, {{8, 2048, 3, 3}, true, true}, 2);
  // Each rank has one value of a channel: all of the variance lies between them.
  check_parts(bench, {{16, 64, 1, 1}, false, true}, 16);
}

TEST_CASE("batch norm in parts where the mean is far from 0", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  settings.fusion = Fusion::elementwise;
  Bench bench(settings);
  // Sums of squares would have no digit left of the variance, in float.
  const double mean = is_16_bits(settings.precision) ? 30 : 5000;
  for (const Extents& extents : {Extents{16, 32, 16, 16}, Extents{6, 65, 9, 7}})
    for (const int ranks : {1, 2})
      check_parts(bench, {extents, false, false, false, false, mean}, ranks);
}

TEST_CASE("batch norm in parts has the same bits each time", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  settings.fusion = Fusion::elementwise;
  Bench bench(settings);
  for (const Extents& extents : {Extents{32, 64, 16, 16}, Extents{6, 65, 13, 11}}) {
    const Case of{extents, true, true, true};
    const Operands operands(bench, of);
    const auto once = [&] {
      Ranks together(bench, of, operands, 2);
      together.forward();
      together.backward();
      return together.results();
    };
    const Results<double> first = once(), second = once();
    CHECK(first.y == second.y);
    CHECK(first.x_gradient == second.x_gradient);
    CHECK(first.residual_gradient == second.residual_gradient);
    CHECK(first.mean == second.mean);
    CHECK(first.inverse_deviation == second.inverse_deviation);
    CHECK(first.running_variance == second.running_variance);
    CHECK(first.gamma_gradient == second.gamma_gradient);
    CHECK(first.beta_gradient == second.beta_gradient);
  }
}

}  // namespace resnet::test
