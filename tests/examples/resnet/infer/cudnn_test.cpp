// SPDX-License-Identifier: Apache-2.0

// Inference on a GPU, by the rule of ../cudnn/accuracy.hpp: against the reference in double, with
// the straightforward computation in the same precision as the yardstick. int8: what integers
// and one rounding give.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "../../../../examples/resnet/ops/inference.hpp"
#include "../../../../examples/resnet/ops/reference/convolution.hpp"
#include "../../../../examples/resnet/ops/reference/layout.hpp"
#include "../../../../examples/resnet/ops/reference/pooling.hpp"
#include "../cudnn/accuracy.hpp"
#include "../cudnn/straightforward.hpp"
#include "support/temporary_directory.hpp"

namespace resnet::test {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

/// Numbers of any precision on the device.
class Numbers {
 public:
  Numbers(Precision precision, const Values& values) : precision_(precision) {
    const auto upload = [&](auto convert) {
      using T = decltype(convert(0.0));
      std::vector<T> typed;
      for (const double value : values) typed.push_back(convert(value));
      bytes_ = std::make_unique<DeviceValues>(typed.size() * sizeof(T));
      penstock::test::copy_and_wait(*bytes_, typed.data());
    };
    if (precision == Precision::int8)
      upload([](double value) { return static_cast<std::int8_t>(value); });
    else if (precision == Precision::fp16)
      upload([](double value) { return __float2half_rn(static_cast<float>(value)); });
    else if (precision == Precision::bf16)
      upload([](double value) { return __float2bfloat16_rn(static_cast<float>(value)); });
    else
      upload([](double value) { return static_cast<float>(value); });
  }

  void* data() const { return bytes_->data(); }
  /// Waits for the device.
  Values get() const {
    const std::vector<std::byte> bytes = bytes_->read();
    const auto typed = [&](auto example, auto convert) {
      Values values;
      for (std::size_t at = 0; at < bytes.size(); at += sizeof example) {
        std::memcpy(static_cast<void*>(&example), bytes.data() + at, sizeof example);
        values.push_back(static_cast<double>(convert(example)));
      }
      return values;
    };
    if (precision_ == Precision::int8)
      return typed(std::int8_t(), [](std::int8_t value) { return value; });
    if (precision_ == Precision::fp16)
      return typed(__half(), [](__half value) { return __half2float(value); });
    if (precision_ == Precision::bf16)
      return typed(__nv_bfloat16(), [](__nv_bfloat16 value) { return __bfloat162float(value); });
    return typed(0.0f, [](float value) { return value; });
  }

 private:
  Precision precision_;
  std::unique_ptr<DeviceValues> bytes_;
};

/// In the settings' format.
struct Operands {
  Operands(const InferenceConvolution& what, Format in) : format(in) {
    const auto exact = [](Precision precision, Values values) {
      for (double& value : values)
        value = precision == Precision::int8 ? std::round(value * 127) : rounded(precision, value);
      return values;
    };
    const double depth = static_cast<double>(what.shape.weights() / what.shape.k);
    const bool int8 = what.precision == Precision::int8;
    x = exact(what.precision, random_values(1, what.shape.in.count()));
    weights = exact(what.precision, random_values(2, what.shape.weights()));
    // Exact in 16 bits: a narrow bias is the same.
    bias = exact(Precision::bf16, random_values(3, what.shape.k, what.quantised() ? 20 : 0.5));
    if (what.quantised())
      scale = exact(Precision::fp32, random_values(4, what.shape.k, (int8 ? 0.01 : 100) / depth));
    residual = exact(what.result, random_values(5, what.shape.out().count()));
    if (!what.residual) residual.assign(residual.size(), 0);
  }

  Format format;
  Values x, weights, bias, scale, residual;
};

constexpr double residual_factor = 0.75;

/// The convolution alone: the truth in double, the yardstick in float.
template <class T>
std::vector<T> convolved(const InferenceConvolution& what, const Operands& operands) {
  std::vector<T> sums(size(what.shape.out().count()));
  if constexpr (std::is_same_v<T, double>) {
    const reference::Convolution<T> plan(what.shape, operands.format);
    std::vector<T> scratch(plan.scratch(1));
    plan.forward(operands.x.data(), operands.weights.data(), sums.data(), {scratch.data(), 1});
  } else {
    const auto multiplied = [&](Values values) {
      for (double& value : values) value = as_operand(what.precision, value);
      return as<T>(values);
    };
    const std::vector<T> x = multiplied(operands.x), weights = multiplied(operands.weights);
    straightforward::for_each_product(
        what.shape, operands.format,
        [&](std::size_t i, std::size_t w, std::size_t o) { sums[o] += x[i] * weights[w]; });
  }
  return sums;
}

/// `store` is what becomes of a number after each of the operations that fusion leaves apart.
template <class T, class Store>
Values computed(const InferenceConvolution& what, const Operands& operands, Fusion fusion,
                const Store& store) {
  const std::vector<T> sums = convolved<T>(what, operands);
  const reference::ActivationLayout layout(what.shape.out(), operands.format);
  const T factor = what.quantised() ? static_cast<T>(residual_factor) : T{1};
  Values y(sums.size());
  for (std::int64_t n = 0; n < what.shape.in.n; ++n)
    for (std::int64_t k = 0; k < what.shape.k; ++k)
      for (std::int64_t i = 0; i < layout.pixels(); ++i) {
        const std::size_t at = size(layout.row(n, k) + i * layout.pixel);
        T value = sums[at];
        if (fusion != Fusion::full) value = store(value);
        if (!operands.scale.empty()) value *= static_cast<T>(operands.scale[size(k)]);
        value += static_cast<T>(operands.bias[size(k)]);
        if (fusion == Fusion::none) value = store(value);
        value += factor * static_cast<T>(operands.residual[at]);
        y[at] = static_cast<double>(what.relu && value < 0 ? T{0} : value);
      }
  return y;
}

/// `pool`: behind the convolution, in one kernel.
Values on_device(const InferenceConvolution& what, const Operands& operands,
                 const Settings& settings, const PoolShape* pool = nullptr) {
  const auto plans = make_inference_plans(settings);
  if (pool == nullptr) plans->prepare(what);
  const auto operations = plans->make_operations();
  const Numbers x(what.precision, operands.x), weights(what.precision, operands.weights),
      residual(what.result, operands.residual), bias(Precision::fp32, operands.bias),
      scale(Precision::fp32, operands.scale.empty() ? Values{0} : operands.scale),
      factor(Precision::fp32, {residual_factor}), narrow(floating(what.precision), operands.bias),
      y(what.result, Values(operands.residual.size(), 99));
  ConvolutionOperands of{weights.data(), static_cast<const float*>(bias.data())};
  if (what.quantised()) {
    of.scale = static_cast<const float*>(scale.data());
    of.residual_scale = static_cast<const float*>(factor.data());
  } else if (is_16_bits(what.precision)) {
    of.narrow_bias = narrow.data();
  }
  const penstock::test::TestStream stream;
  if (pool != nullptr)
    operations->convolution_and_max_pool(what, *pool, x.data(), of, y.data(), stream);
  else
    operations->convolution(what, x.data(), of, what.residual ? residual.data() : nullptr, y.data(),
                            stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  Values values = y.get();
  if (pool != nullptr) values.resize(size(pool->out().count()));
  return values;
}

/// Stem, 3x3, strided and 1x1 convolutions.
std::vector<ConvolutionShape> shapes(Format format) {
  const std::int64_t first = format == Format::nhwc ? 4 : 3;
  return {{{2, first, 64, 64}, 64, 7, 2, 3},
          {{3, 64, 14, 14}, 64, 3, 1, 1},
          {{2, 64, 28, 28}, 128, 3, 2, 1},
          {{1, 64, 14, 14}, 256, 1, 1, 0},
          {{2, 128, 7, 7}, 256, 1, 2, 0}};
}

void check_convolution(const InferenceConvolution& what, const Settings& settings) {
  const Operands operands(what, settings.format);
  const Values truth = computed<double>(what, operands, Fusion::full, [](double v) { return v; });
  const Values y = on_device(what, operands, settings);
  INFO("kernel " << what.shape.kernel << ", precision " << static_cast<int>(what.precision)
                 << ", format " << static_cast<int>(settings.format) << ", fusion "
                 << static_cast<int>(settings.fusion) << ", residual " << what.residual);
  if (what.result == Precision::int8) {
    double worst = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      worst = std::max(worst, std::abs(y[i] - std::min(127.0, std::max(-128.0, truth[i]))));
    // The first convolution's parts are rounded to fp16 in between.
    CHECK(worst <=
          (settings.fusion == Fusion::none && what.precision == Precision::fp16 ? 0.6 : 0.51));
    return;
  }
  const auto store = [&](float value) {
    return static_cast<float>(rounded(what.precision, static_cast<double>(value)));
  };
  Values base = computed<float>(what, operands, settings.fusion, store);
  for (double& value : base) value = rounded(what.precision, value);
  const double floor = unit_roundoff(what.precision) * rms(truth) / 4;
  const double limit = what.precision == Precision::fp32 ? 2 : 3;
  CHECK(rms_distance(truth, y) <= limit * std::max(rms_distance(truth, base), floor));
}

}  // namespace

TEST_CASE("inference on a GPU: convolutions with what follows them", "[resnet][cudnn]") {
  const auto [precision, format] =
      GENERATE(std::pair(Precision::fp32, Format::nchw), std::pair(Precision::tf32, Format::nhwc),
               std::pair(Precision::fp16, Format::nchw), std::pair(Precision::fp16, Format::nhwc),
               std::pair(Precision::bf16, Format::nhwc), std::pair(Precision::int8, Format::nhwc));
  const auto fusion = GENERATE(Fusion::none, Fusion::elementwise, Fusion::full);
  const auto plans = GENERATE(PlanChoice::heuristic, PlanChoice::timed);
  const Settings settings{
      .precision = precision, .format = format, .fusion = fusion, .plans = plans};
  for (const ConvolutionShape& shape : shapes(format)) {
    const bool stem = shape.kernel == 7;
    for (const auto& [residual, relu] :
         {std::pair(false, false), std::pair(false, true), std::pair(true, true)})
      if (!stem || (relu && !residual))
        check_convolution(
            {shape, stem ? floating(precision) : precision, precision, residual, relu}, settings);
  }
}

/// As Fusion::full has it, and pooled.
template <class T, class Store>
Values computed_and_pooled(const InferenceConvolution& what, const Operands& operands,
                           const PoolShape& pool, const Store& store) {
  Values between = computed<T>(what, operands, Fusion::full, store), y(size(pool.out().count()));
  for (double& value : between) value = store(static_cast<T>(value));
  std::vector<std::uint8_t> chosen(y.size());
  reference::max_pool(pool, operands.format, between.data(), y.data(), chosen.data(), 1);
  return y;
}

TEST_CASE("inference on a GPU: the first convolution and its max pool in one kernel",
          "[resnet][cudnn]") {
  const Settings settings{.precision = GENERATE(Precision::fp16, Precision::bf16),
                          .format = Format::nhwc,
                          .fusion = Fusion::full};
  // As networks have it; odd; two and three tiles wide; one pixel; more images than strips.
  const Extents in =
      GENERATE(Extents{1, 4, 224, 224}, Extents{3, 4, 37, 51}, Extents{2, 4, 30, 300},
               Extents{1, 4, 9, 901}, Extents{2, 4, 1, 1}, Extents{600, 4, 13, 18});
  INFO(in.n << " x " << in.h << " x " << in.w);
  const InferenceConvolution what{{in, 64, 7, 2, 3}, settings.precision, settings.precision};
  const PoolShape pool{what.shape.out()};
  REQUIRE(make_inference_plans(settings)->fuses(what, pool));
  Operands operands(what, settings.format);
  for (std::size_t i = 3; i < operands.weights.size(); i += 4) operands.weights[i] = 0;  // padding
  const Values truth =
      computed_and_pooled<double>(what, operands, pool, [](double v) { return v; });
  const Values base = computed_and_pooled<float>(what, operands, pool, [&](float value) {
    return static_cast<float>(rounded(what.precision, static_cast<double>(value)));
  });
  const Values y = on_device(what, operands, settings, &pool);
  const double floor = unit_roundoff(what.precision) * rms(truth) / 4;
  CHECK(rms_distance(truth, y) <= 3 * std::max(rms_distance(truth, base), floor));
  double worst = 0;  // relative to the largest number
  for (std::size_t i = 0; i < y.size(); ++i) worst = std::max(worst, std::abs(y[i] - truth[i]));
  CHECK(worst <= 2 * unit_roundoff(what.precision) * *std::max_element(truth.begin(), truth.end()));
}

TEST_CASE("inference on a GPU: what has no kernel with the max pool", "[resnet][cudnn]") {
  const auto fuses = [](const Settings& settings, const InferenceConvolution& what) {
    return make_inference_plans(settings)->fuses(what, {what.shape.out()});
  };
  const Settings settings{
      .precision = Precision::fp16, .format = Format::nhwc, .fusion = Fusion::full};
  const InferenceConvolution what{{{2, 4, 64, 64}, 64, 7, 2, 3}, Precision::fp16, Precision::fp16};
  REQUIRE(fuses(settings, what));
  for (const auto change : std::initializer_list<void (*)(InferenceConvolution&)>{
           [](InferenceConvolution& other) { other.shape.k = 32; },
           [](InferenceConvolution& other) { other.shape.kernel = 5; },
           [](InferenceConvolution& other) { other.relu = false; },
           [](InferenceConvolution& other) { other.result = Precision::int8; },
           [](InferenceConvolution& other) { other.shape.in.c = 8; }}) {
    InferenceConvolution other = what;
    change(other);
    CHECK_FALSE(fuses(settings, other));
  }
  for (const auto change : std::initializer_list<void (*)(Settings&)>{
           [](Settings& other) { other.fusion = Fusion::elementwise; },
           [](Settings& other) { other.format = Format::nchw; }}) {
    Settings other = settings;
    change(other);
    CHECK_FALSE(fuses(other, what));
  }
}

TEST_CASE("inference on a GPU: plans that were saved are taken", "[resnet][cudnn]") {
  const penstock::test::TemporaryDirectory directory;
  const Settings settings{.precision = Precision::fp16,
                          .format = Format::nhwc,
                          .fusion = Fusion::full,
                          .plans = PlanChoice::timed,
                          .plan_file = directory / "plans"};
  const InferenceConvolution what{
      {{3, 64, 14, 14}, 64, 3, 1, 1}, Precision::fp16, Precision::fp16, true, true};
  const auto first = make_inference_plans(settings);
  first->prepare(what);
  first->save_plans();
  REQUIRE(std::filesystem::exists(directory / "plans"));
  const Operands operands(what, settings.format);
  const auto again = make_inference_plans(settings);
  again->prepare(what);
  // A way without an engine's name is one out of the file.
  CHECK(first->engine(what).starts_with(again->engine(what)));
  CHECK(first->engine(what) != again->engine(what));
  check_convolution(what, settings);
}

TEST_CASE("inference on a GPU: pooling", "[resnet][cudnn]") {
  const auto [precision, format] =
      GENERATE(std::pair(Precision::fp32, Format::nchw), std::pair(Precision::fp16, Format::nhwc),
               std::pair(Precision::bf16, Format::nhwc), std::pair(Precision::int8, Format::nhwc));
  const PoolShape shape{{2, 24, 15, 14}};
  const auto plans = make_inference_plans({.precision = precision, .format = format});
  const auto operations = plans->make_operations();
  Values values = random_values(1, shape.in.count(), 100);
  for (double& value : values) value = std::round(value);  // exact in every precision
  const Numbers x(precision, values), y(precision, Values(size(shape.out().count()), 99)),
      means(floating(precision), Values(size(shape.in.n * shape.in.c), 99));
  const float scale = precision == Precision::int8 ? 0.5f : 1.0f;
  const penstock::test::TestStream stream;
  operations->max_pool(shape, precision, x.data(), y.data(), stream);
  operations->average_pool(shape.in, precision, x.data(), scale, means.data(), stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  Values truth(size(shape.out().count())), truth_means(size(shape.in.n * shape.in.c));
  std::vector<std::uint8_t> chosen(truth.size());
  reference::max_pool(shape, format, values.data(), truth.data(), chosen.data(), 1);
  reference::average_pool(reference::ActivationLayout(shape.in, format), values.data(),
                          truth_means.data(), 1);
  CHECK(y.get() == truth);
  for (double& mean : truth_means) mean *= static_cast<double>(scale);
  CHECK(rms_distance(truth_means, means.get()) <=
        2 * unit_roundoff(floating(precision)) * std::max(1.0, rms(truth_means)));
}

TEMPLATE_TEST_CASE("inference on a GPU: images become what the first convolution reads",
                   "[resnet][cudnn]", std::uint8_t, float) {
  const auto format = GENERATE(Format::nchw, Format::nhwc);
  const auto input_format = GENERATE(Format::nchw, Format::nhwc);
  const Extents extents = GENERATE(Extents{3, 3, 9, 7}, Extents{3, 3, 6, 10});  // by fours
  const auto plans = make_inference_plans({.precision = Precision::fp16, .format = format});
  const auto operations = plans->make_operations();
  const std::int64_t padded = plans->padded_channels(3), pixels = extents.h * extents.w;
  ImageInput input{extents, input_format};
  input.factor = {0.01f, 0.02f, 0.03f, 0};
  input.offset = {-1, 0.5f, 2, 0};
  std::vector<TestType> bytes;
  for (std::int64_t i = 0; i < extents.count(); ++i)
    bytes.push_back(static_cast<std::uint8_t>(mix(static_cast<std::uint64_t>(i))));
  const DeviceArrayOf<TestType> device(bytes.size());
  penstock::test::copy_and_wait(device, bytes.data());
  const Numbers x(Precision::fp16, Values(size(3 * padded * pixels), 99));
  const penstock::test::TestStream stream;
  operations->convert(input, device.data(), x.data(), stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const auto place = [&](Format of, std::int64_t channels, std::int64_t n, std::int64_t c,
                         std::int64_t pixel) {
    return size(of == Format::nchw ? (n * channels + c) * pixels + pixel
                                   : (n * pixels + pixel) * channels + c);
  };
  const Values values = x.get();
  for (std::int64_t n = 0; n < 3; ++n)
    for (std::int64_t c = 0; c < padded; ++c)
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        const double wanted = c >= 3 ? 0
                                     : bytes[place(input_format, 3, n, c, pixel)] *
                                               static_cast<double>(input.factor[size(c)]) +
                                           static_cast<double>(input.offset[size(c)]);
        CHECK(std::abs(values[place(format, padded, n, c, pixel)] - wanted) <= 4e-3);
      }
}

TEST_CASE("inference on a GPU: threads share plans", "[resnet][cudnn]") {
  const Settings settings{
      .precision = Precision::fp16, .format = Format::nhwc, .fusion = Fusion::full};
  const InferenceConvolution what{
      {{3, 64, 14, 14}, 64, 3, 1, 1}, Precision::fp16, Precision::fp16, false, true};
  const Operands operands(what, settings.format);
  const Values wanted = on_device(what, operands, settings);
  const auto plans = make_inference_plans(settings);
  plans->prepare(what);
  const Numbers x(what.precision, operands.x), weights(what.precision, operands.weights),
      bias(Precision::fp32, operands.bias), narrow(what.precision, operands.bias);
  const ConvolutionOperands of{.weights = weights.data(),
                               .bias = static_cast<const float*>(bias.data()),
                               .narrow_bias = narrow.data()};
  std::vector<std::unique_ptr<Numbers>> results;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    results.push_back(std::make_unique<Numbers>(what.result, Values(wanted.size(), 99)));
  for (const auto& y : results)
    threads.emplace_back([&, out = y->data()] {
      const auto operations = plans->make_operations();
      cudaStream_t stream = nullptr;
      cudaStreamCreate(&stream);
      for (int i = 0; i < 50; ++i)
        operations->convolution(what, x.data(), of, nullptr, out, stream);
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& y : results) CHECK(y->get() == wanted);
}

}  // namespace resnet::test
