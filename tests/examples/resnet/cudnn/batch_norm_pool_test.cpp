// SPDX-License-Identifier: Apache-2.0

// Batch norm, ReLU and max pool in one on a GPU, against the reference in double.

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "../../../../examples/resnet/ops/reference/pooling.hpp"
#include "accuracy.hpp"
#include "batch_norm_problem.hpp"
#include "straightforward.hpp"

namespace resnet::test {
namespace {

template <class T>
struct PoolResults {
  std::vector<T> y, x_gradient, gamma_gradient, beta_gradient;
};

/// Through pool and ReLU: `normalized` is behind ReLU.
template <class T>
std::vector<T> pool_gradient(const PoolShape& shape, Format format,
                             const std::vector<std::uint8_t>& chosen,
                             const std::vector<T>& gradient, const std::vector<T>& more,
                             const std::vector<T>& normalized) {
  std::vector<T> arriving(normalized.size());
  reference::max_pool_gradient(shape, format, chosen.data(), gradient.data(),
                               more.empty() ? nullptr : more.data(), arriving.data(), 1);
  for (std::size_t i = 0; i < arriving.size(); ++i)
    if (normalized[i] <= 0) arriving[i] = 0;
  return arriving;
}

struct PoolProblem {
  PoolProblem(const Bench& bench, const PoolShape& of, bool with_more)
      : shape(of),
        format(bench.settings().format),
        norm(bench, {of.in}),
        gradient(bench.numbers(2, of.out().count())),
        more(with_more ? bench.numbers(3, of.out().count()) : Values()) {}

  /// `chosen`, in addition: by what is exact.
  PoolResults<double> in_double(std::vector<std::uint8_t>& chosen) const {
    const reference::ActivationLayout layout(shape.in, format);
    const Case of{shape.in, false, true};
    Results<double> forward = test::in_double(of, format, norm, norm.x);
    PoolResults<double> results;
    results.y.resize(gradient.size());
    chosen.resize(gradient.size());
    reference::max_pool(shape, format, forward.y.data(), results.y.data(), chosen.data(), 1);
    Operands behind = norm;
    behind.y_gradient = pool_gradient(shape, format, chosen, gradient, more, forward.y);
    Results<double> backward = test::in_double(of, format, behind, forward.y);
    results.x_gradient = backward.x_gradient;
    results.gamma_gradient = backward.gamma_gradient;
    results.beta_gradient = backward.beta_gradient;
    return results;
  }
  PoolResults<float> in_float(const std::vector<std::uint8_t>& chosen) const {
    const reference::ActivationLayout layout(shape.in, format);
    const std::vector<float> x = as<float>(norm.x);
    PoolResults<float> results{
        std::vector<float>(gradient.size()), std::vector<float>(x.size()), {}, {}};
    std::vector<float> normalized(x.size());
    std::vector<straightforward::Statistics> statistics;
    for (std::int64_t c = 0; c < shape.in.c; ++c) {
      const auto at = static_cast<std::size_t>(c);
      statistics.push_back(straightforward::statistics({layout, c}, x));
      straightforward::normalize({layout, c}, x, statistics.back(),
                                 static_cast<float>(norm.gamma[at]),
                                 static_cast<float>(norm.beta[at]), nullptr, true, normalized);
    }
    std::vector<std::uint8_t> ignored(gradient.size());
    reference::max_pool(shape, format, normalized.data(), results.y.data(), ignored.data(), 1);
    const std::vector<float> arriving =
        pool_gradient(shape, format, chosen, as<float>(gradient), as<float>(more), normalized);
    for (std::int64_t c = 0; c < shape.in.c; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const straightforward::NormGradient sums =
          straightforward::norm_gradient({layout, c}, x, arriving, statistics[at],
                                         static_cast<float>(norm.gamma[at]), results.x_gradient);
      results.gamma_gradient.push_back(sums.gamma);
      results.beta_gradient.push_back(sums.beta);
    }
    return results;
  }

  PoolShape shape;
  Format format;
  Operands norm;
  Values gradient, more;
};

/// On the device, behind the statistics.
class PooledOnDevice {
 public:
  PooledOnDevice(const Bench& bench, const PoolProblem& problem)
      : bench_(bench),
        shape_(problem.shape),
        x_(bench.upload(problem.norm.x)),
        normalized_(bench.room(shape_.in.count())),
        gradient_(bench.upload(problem.gradient)),
        more_(problem.more.empty() ? nullptr : bench.upload(problem.more)),
        y_(bench.room(shape_.out().count())),
        x_gradient_(bench.room(shape_.in.count())),
        chosen_(problem.gradient.size()),
        gamma_(bench.upload_as(as<float>(problem.norm.gamma))),
        beta_(bench.upload_as(as<float>(problem.norm.beta))),
        running_mean_(channels()),
        running_variance_(channels()),
        mean_(channels()),
        inverse_deviation_(channels()),
        gamma_gradient_(channels()),
        beta_gradient_(channels()) {}

  void run() {
    Operations& ops = bench_.operations();
    cudaStream_t stream = bench_.stream();
    ops.batch_norm(shape_.in, x_->data(), norm(), nullptr, true, normalized_->data(), stream);
    ops.batch_norm_max_pool(shape_, x_->data(), norm(), y_->data(), chosen_.data(), stream);
    ops.batch_norm_max_pool_gradient(shape_, x_->data(), chosen_.data(), gradient_->data(),
                                     more_ ? more_->data() : nullptr, norm(), x_gradient_->data(),
                                     stream);
  }
  void expect(const PoolResults<double>& truth, const PoolResults<float>& base) const {
    bench_.expect("y", y(), truth.y, base.y);
    bench_.expect("gradient of x", bench_.download(*x_gradient_), truth.x_gradient,
                  base.x_gradient);
    // What sums of so many terms are like.
    const double size = std::sqrt(static_cast<double>(shape_.out().count() / shape_.in.c));
    bench_.expect_floats("gradient of gamma", gamma_gradient_, truth.gamma_gradient,
                         base.gamma_gradient, size);
    bench_.expect_floats("gradient of beta", beta_gradient_, truth.beta_gradient,
                         base.beta_gradient, size);
  }
  Values y() const { return bench_.download(*y_); }

 private:
  std::size_t channels() const { return static_cast<std::size_t>(shape_.in.c); }
  BatchNorm norm() const {
    BatchNorm norm;
    norm.gamma = gamma_->data(), norm.beta = beta_->data();
    norm.running_mean = running_mean_.data(), norm.running_variance = running_variance_.data();
    norm.mean = mean_.data(), norm.inverse_deviation = inverse_deviation_.data();
    norm.gamma_gradient = gamma_gradient_.data(), norm.beta_gradient = beta_gradient_.data();
    return norm;
  }

  const Bench& bench_;
  PoolShape shape_;
  std::unique_ptr<DeviceValues> x_, normalized_, gradient_, more_, y_, x_gradient_;
  DeviceArrayOf<std::uint8_t> chosen_;
  std::unique_ptr<DeviceArrayOf<float>> gamma_, beta_;
  DeviceArrayOf<float> running_mean_, running_variance_, mean_, inverse_deviation_, gamma_gradient_,
      beta_gradient_;
};

Settings pooling(Precision precision) {
  Settings settings;
  settings.precision = precision;
  settings.format = Format::nhwc;
  settings.fusion = Fusion::full;
  return settings;
}

}  // namespace

TEST_CASE("batch norm with its pool is as exact as the straightforward one", "[gpu][resnet]") {
  const Bench bench(
      pooling(GENERATE(Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16)));
  // The stem's, smaller; odd extents, where windows end beyond; one pixel; and many channels.
  const PoolShape shape{GENERATE(Extents{4, 64, 32, 32}, Extents{3, 8, 7, 9}, Extents{2, 16, 1, 1},
                                 Extents{2, 1032, 5, 4})};
  const PoolProblem problem(bench, shape, GENERATE(false, true));
  REQUIRE(bench.operations().fuses_pool(shape));
  PooledOnDevice device(bench, problem);
  device.run();
  std::vector<std::uint8_t> chosen;
  const PoolResults<double> truth = problem.in_double(chosen);
  device.expect(truth, problem.in_float(chosen));
}

TEST_CASE("batch norm with its pool keeps NaN", "[gpu][resnet]") {
  const Bench bench(pooling(Precision::fp16));
  PoolProblem problem(bench, {{2, 8, 8, 8}}, true);
  problem.norm.x.front() = std::numeric_limits<double>::quiet_NaN();
  PooledOnDevice device(bench, problem);
  device.run();
  CHECK(std::isnan(device.y().front()));
}

TEST_CASE("what pool fuses with batch norm", "[gpu][resnet]") {
  Settings settings = pooling(Precision::fp16);
  const PoolShape stem{{2, 64, 8, 8}};
  const auto fuses = [&](const PoolShape& shape) {
    return make_operations(settings)->fuses_pool(shape);
  };
  CHECK(fuses(stem));
  CHECK(!fuses({{2, 65, 8, 8}}));
  CHECK(!fuses({{2, 64, 8, 8}, 2, 2, 0}));
  settings.fusion = Fusion::elementwise;
  CHECK(!fuses(stem));
  settings.fusion = Fusion::full;
  settings.format = Format::nchw;
  CHECK(!fuses(stem));
}

}  // namespace resnet::test
