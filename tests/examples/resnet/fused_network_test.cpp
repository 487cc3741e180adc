// SPDX-License-Identifier: Apache-2.0

// The network with Fusion::full: the same bits as without, whichever convolutions fuse, and as many
// fused operations and as little memory as that promises.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <penstock/emulation.hpp>
#include <utility>
#include <vector>

#include "../../../examples/resnet/ops/reference/reference_operations.hpp"
#include "../../support/catch.hpp"
#include "training.hpp"

namespace resnet::test {
namespace {

using Choice = std::function<bool(const ConvolutionShape&, bool normalized_input)>;

/// Calls of each kind.
struct Calls {
  int statistics = 0, normalized = 0, weight_gradients = 0, data_gradients = 0;
  int applied = 0, batch_norms = 0, batch_norm_gradients = 0;
  int pooled = 0, pooled_gradients = 0;
  bool operator==(const Calls&) const = default;
};

/// Fuses what it is told to (the rest throws), and counts.
class PartlyFused : public reference::ReferenceOperations {
 public:
  PartlyFused(const Settings& settings, Choice choice)
      : ReferenceOperations(settings), choice_(std::move(choice)) {}

  bool fuses(const ConvolutionShape& shape, bool normalized_input) override {
    return choice_(shape, normalized_input);
  }
  void convolution_statistics(const ConvolutionShape& shape, const void* x, const BatchNorm* before,
                              const void* weights, void* y, const BatchNorm& norm,
                              cudaStream_t stream) override {
    ++(before == nullptr ? calls.statistics : calls.normalized);
    ReferenceOperations::convolution_statistics(shape, x, before, weights, y, norm, stream);
  }
  void batch_norm_apply(const Extents& extents, const void* x, const BatchNorm& norm,
                        const void* residual, const BatchNorm* residual_norm, bool relu, void* y,
                        cudaStream_t stream) override {
    ++calls.applied;
    ReferenceOperations::batch_norm_apply(extents, x, norm, residual, residual_norm, relu, y,
                                          stream);
  }
  void normalized_weight_gradient(const ConvolutionShape& shape, const void* x,
                                  const BatchNorm& before, const void* y_gradient,
                                  void* weight_gradient, cudaStream_t stream) override {
    ++calls.weight_gradients;
    ReferenceOperations::normalized_weight_gradient(shape, x, before, y_gradient, weight_gradient,
                                                    stream);
  }
  void normalized_data_gradient(const ConvolutionShape& shape, const void* y_gradient,
                                const void* weights, const void* x, const BatchNorm& before,
                                void* x_gradient, cudaStream_t stream) override {
    ++calls.data_gradients;
    ReferenceOperations::normalized_data_gradient(shape, y_gradient, weights, x, before, x_gradient,
                                                  stream);
  }
  void batch_norm(const Extents& extents, const void* x, const BatchNorm& norm,
                  const void* residual, bool relu, void* y, cudaStream_t stream) override {
    ++calls.batch_norms;
    ReferenceOperations::batch_norm(extents, x, norm, residual, relu, y, stream);
  }
  void batch_norm_gradient(const Extents& extents, const void* x, const void* y,
                           const void* y_gradient, const void* more, const BatchNorm& norm,
                           bool relu, void* x_gradient, void* residual_gradient,
                           cudaStream_t stream) override {
    ++calls.batch_norm_gradients;
    ReferenceOperations::batch_norm_gradient(extents, x, y, y_gradient, more, norm, relu,
                                             x_gradient, residual_gradient, stream);
  }
  void batch_norm_max_pool(const PoolShape& shape, const void* x, const BatchNorm& norm, void* y,
                           std::uint8_t* chosen, cudaStream_t stream) override {
    ++calls.pooled;
    ReferenceOperations::batch_norm_max_pool(shape, x, norm, y, chosen, stream);
  }
  void batch_norm_max_pool_gradient(const PoolShape& shape, const void* x,
                                    const std::uint8_t* chosen, const void* y_gradient,
                                    const void* more, const BatchNorm& norm, void* x_gradient,
                                    cudaStream_t stream) override {
    ++calls.pooled_gradients;
    ReferenceOperations::batch_norm_max_pool_gradient(shape, x, chosen, y_gradient, more, norm,
                                                      x_gradient, stream);
  }

  Calls calls;

 private:
  Choice choice_;
};

/// Four blocks of three convolutions, two of them with a shortcut.
NetworkOptions bottlenecks() {
  return {{"tiny", BlockKind::bottleneck, 8, 7, 2, true, {{2, 4, 1}, {2, 8, 2}}, 10},
          {3, 3, 33, 30}};
}
/// Three blocks of two convolutions, two of them with a shortcut.
NetworkOptions basic_blocks() {
  return {architecture_of("resnet8", 10), {6, 3, 12, 12}};
}

Settings with(Fusion fusion, Format format = Format::nchw, Precision precision = Precision::fp32) {
  return {.precision = precision, .format = format, .fusion = fusion};
}

/// Two steps (the second of a smaller batch), then inference. What the first needs is there.
void run(Training& training) {
  penstock::emulation::reset_counters();
  training.step();
  CHECK(penstock::emulation::call_classes().allocating == 0);
  training.gradients(training.network.input().n - 1);
  training.network.step(test_sgd, training.stream.get());
  training.infer();
}

/// Two steps, and what the network says then, are those of Fusion::elementwise. Returns the calls.
Calls check_same_bits(const NetworkOptions& options, Format format, const Choice& choice,
                      Precision precision = Precision::fp32) {
  Training apart(options, with(Fusion::elementwise, format, precision));
  auto operations = std::make_unique<PartlyFused>(with(Fusion::full, format, precision), choice);
  PartlyFused& counted = *operations;
  Training fused(options, std::move(operations));
  run(apart);
  run(fused);
  CHECK(same_bits(fused.logits(), apart.logits()));
  CHECK(same_bits(fused.network.gradients(fused.stream.get()),
                  apart.network.gradients(apart.stream.get())));
  CHECK(same_bits(fused.state(), apart.state()));
  CHECK(fused.metrics().loss == apart.metrics().loss);
  return counted.calls;
}

bool all(const ConvolutionShape&, bool) {
  return true;
}

TEST_CASE("fused network: every convolution fuses") {
  const Format format = GENERATE(Format::nchw, Format::nhwc);
  const Precision precision = GENERATE(Precision::fp32, Precision::fp16, Precision::bf16);
  // Of two steps. Stem, first convolutions and shortcuts read what lies in memory; stem (where no
  // pool follows) and last convolutions are normalised into memory, shortcuts with the last.
  CHECK(check_same_bits(basic_blocks(), format, all, precision) == Calls{12, 6, 6, 6, 8, 0, 12});
  CHECK(check_same_bits(bottlenecks(), format, all, precision) ==
        Calls{14, 16, 16, 16, 8, 0, 12, 2, 2});
}

TEST_CASE("fused network: some convolutions fuse, others do not") {
  const auto calls = [](const Choice& choice) {
    return check_same_bits(bottlenecks(), Format::nhwc, choice);
  };
  const auto normalized_1x1 = [](const ConvolutionShape& shape, bool normalized_input) {
    return !normalized_input || shape.kernel == 1;
  };
  CHECK(calls([](const auto&, bool normalized_input) { return !normalized_input; }) ==
        Calls{30, 0, 0, 0, 24, 0, 28, 2, 2});
  // The last convolutions read the 3x3's raw; the 3x3 reads what is normalised in memory.
  CHECK(calls(normalized_1x1) == Calls{22, 8, 8, 8, 16, 0, 20, 2, 2});
  // Where nothing but normalised input fuses, no statistics come out of first convolutions: there
  // is no start.
  CHECK(calls([](const auto&, bool normalized_input) { return normalized_input; }) ==
        Calls{0, 0, 0, 0, 0, 30, 30});
  // A first convolution without statistics; the 3x3 behind it has them, and stays raw.
  CHECK(calls([](const ConvolutionShape& shape, bool normalized_input) {
          return normalized_input || shape.kernel == 3;
        }) == Calls{8, 8, 8, 8, 8, 14, 22});
  // By the size of the image: the second stage alone, but for what reads the first.
  CHECK(calls([](const ConvolutionShape& shape, bool) { return shape.in.h <= 5; }) ==
        Calls{4, 4, 4, 4, 4, 22, 26});
}

TEST_CASE("fused network: batches of one size fuse, of the other not") {
  const bool largest = GENERATE(false, true);
  const auto by_size = [&](const NetworkOptions& options) {
    return [n = options.images.n, largest](const ConvolutionShape& shape, bool) {
      return (shape.in.n == n) == largest;
    };
  };
  const Calls half{6, 3, 3, 3, 4, 9, 15};
  CHECK(check_same_bits(basic_blocks(), Format::nchw, by_size(basic_blocks())) == half);
}

TEST_CASE("fused network: a stem without its pool, and a pool whose stem has no statistics") {
  // The stem's convolution is the only one of 7 x 7.
  const auto stem = [](const ConvolutionShape& shape, bool) { return shape.kernel == 7; };
  const auto rest = [](const ConvolutionShape& shape, bool) { return shape.kernel != 7; };
  CHECK(check_same_bits(bottlenecks(), Format::nhwc, stem) == Calls{2, 0, 0, 0, 0, 28, 28, 2, 2});
  CHECK(check_same_bits(bottlenecks(), Format::nhwc, rest) == Calls{12, 16, 16, 16, 8, 2, 14});
}

TEST_CASE("fused network: memory for what is never written is not taken") {
  const auto taken = [](const NetworkOptions& options, const Settings& settings) {
    const auto operations = make_operations(settings);
    std::size_t before = 0, after = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
    const Network network(options, *operations);
    REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
    return before - after;
  };
  // The normalised output of all but the last convolution of a block, and of a stem with a pool;
  // and of shortcuts.
  const NetworkOptions options = GENERATE(basic_blocks(), bottlenecks());
  const Layers layers = layers_of(options.architecture, options.images);
  const auto bytes = [](const ConvolutionNorm& layer) {
    return static_cast<std::size_t>(layer.shape.out().count()) * sizeof(float);
  };
  std::size_t saved = layers.pool ? bytes(layers.stem) : 0;
  for (const Block& block : layers.blocks) {
    for (std::size_t i = 0; i + 1 < block.path.size(); ++i) saved += bytes(block.path[i]);
    if (block.shortcut) saved += bytes(*block.shortcut);
  }
  CHECK(taken(options, with(Fusion::elementwise)) - taken(options, with(Fusion::full)) == saved);
}

TEST_CASE("fused operations refuse what does not fuse") {
  const auto operations = make_operations(with(Fusion::elementwise));
  const ConvolutionShape shape{{1, 2, 3, 3}, 2, 3, 1, 1};
  CHECK(!operations->fuses(shape, false));
  CHECK_THROWS_AS(
      operations->convolution_statistics(shape, nullptr, nullptr, nullptr, nullptr, {}, nullptr),
      UnsupportedOperation);
  CHECK_THROWS_AS(
      operations->normalized_weight_gradient(shape, nullptr, {}, nullptr, nullptr, nullptr),
      UnsupportedOperation);
  CHECK_THROWS_AS(
      operations->normalized_data_gradient(shape, nullptr, nullptr, nullptr, {}, nullptr, nullptr),
      UnsupportedOperation);
  const PoolShape pool{{1, 2, 3, 3}};
  CHECK(!operations->fuses_pool(pool));
  CHECK_THROWS_AS(operations->batch_norm_max_pool(pool, nullptr, {}, nullptr, nullptr, nullptr),
                  UnsupportedOperation);
  CHECK_THROWS_AS(operations->batch_norm_max_pool_gradient(pool, nullptr, nullptr, nullptr, nullptr,
                                                           {}, nullptr, nullptr),
                  UnsupportedOperation);
}

}  // namespace
}  // namespace resnet::test
