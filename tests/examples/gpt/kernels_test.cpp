// SPDX-License-Identifier: Apache-2.0

// The kernels of examples/gpt, each with one lane, in double: the gradients against differences.

#include "../../../examples/gpt/kernels.hpp"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "../resnet/gradient_check.hpp"
#include "../resnet/random.hpp"

namespace gpt::test {
namespace {

using resnet::test::check_gradient;
using resnet::test::random_values;
using resnet::test::weigh;
using Values = std::vector<double>;

template <class Op>
void for_all(std::int64_t rows, const Op& op) {
  for (std::int64_t row = 0; row < rows; ++row) op(Lanes{}, row);
}

TEST_CASE("layer norm: gradients of input and weight against differences, set and added") {
  constexpr std::int64_t kRows = 5, kChannels = 7, kParts = 3;
  Values in = random_values(1, kRows * kChannels, 2, 0.5), weight = random_values(2, kChannels);
  const Values gradient = random_values(3, kRows * kChannels);
  Values out(in.size()), mean(kRows), scale(kRows);
  const Moments<double> moments{mean.data(), scale.data()};
  const auto loss = [&] {
    for_all(kRows, LayerNorm<double>{in.data(), weight.data(), out.data(), moments, kChannels});
    return weigh(gradient, out);
  };
  loss();
  double sum = 0;
  for (std::int64_t i = 0; i < kChannels; ++i)
    sum += out[static_cast<std::size_t>(i)] / weight[static_cast<std::size_t>(i)];
  CHECK(std::abs(sum) < 1e-12);  // a normalised row has the mean 0

  Values in_gradient(in.size(), 99), parts(kParts * kChannels), weight_gradient(kChannels);
  const auto backward = [&](bool add) {
    for_all(kRows, LayerNormBackward<double>{in.data(), weight.data(), gradient.data(), moments,
                                             in_gradient.data(), kChannels, add});
  };
  backward(false);
  for_all(kParts, LayerNormWeightParts<double>{in.data(), gradient.data(), moments, parts.data(),
                                               kRows, kChannels, kParts});
  for (std::int64_t i = 0; i < kChannels; ++i)
    SumParts<double>{parts.data(), weight_gradient.data(), kChannels, kParts}(i);
  const Values once = in_gradient;
  backward(true);
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(in_gradient[i] == Approx(2 * once[i]));
  check_gradient(in, once, loss);
  check_gradient(weight, weight_gradient, loss);
}

TEST_CASE("attention: the softmax sees its own document up to the token alone; gradients") {
  constexpr std::int64_t kHeads = 2, kLength = 6;
  const std::vector<std::int32_t> positions{0, 1, 2, 0, 1, 0};  // three documents
  const std::vector<std::int64_t> document{0, 0, 0, 1, 1, 2};
  Values products = random_values(4, kHeads * kLength * kLength, 3);
  const Values gradient = random_values(5, static_cast<std::int64_t>(products.size()));
  const double scale = 0.7;
  Values scores(products.size()), probabilities(products.size(), 99);
  const auto loss = [&] {
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = scale * products[i];
    for_all(kHeads * kLength, AttentionSoftmax<double>{scores.data(), positions.data(),
                                                       probabilities.data(), kLength});
    return weigh(gradient, probabilities);
  };
  loss();
  for (std::int64_t row = 0; row < kHeads * kLength; ++row) {
    const auto token = static_cast<std::size_t>(row % kLength);
    double sum = 0;
    for (std::size_t key = 0; key < kLength; ++key) {
      const double probability = probabilities[static_cast<std::size_t>(row) * kLength + key];
      CHECK((probability > 0) == (key <= token && document[key] == document[token]));
      sum += probability;
    }
    CHECK(sum == Approx(1));
  }
  Values product_gradient(products.size(), 99);
  for_all(kHeads * kLength,
          AttentionSoftmaxBackward<double>{probabilities.data(), gradient.data(), positions.data(),
                                           product_gradient.data(), kLength, scale});
  check_gradient(products, product_gradient, loss, products.size());
}

TEST_CASE("GELU: values, and the gradient against differences") {
  Values in = random_values(6, 20, 4), out(in.size());
  const Values weights = random_values(7, 20);
  const auto loss = [&] {
    for (std::size_t i = 0; i < in.size(); ++i)
      Gelu<double>{in.data(), out.data()}(static_cast<std::int64_t>(i));
    return weigh(weights, out);
  };
  loss();
  for (std::size_t i = 0; i < in.size(); ++i)  // the exact GELU is less than 5e-4 away
    CHECK(std::abs(out[i] - in[i] * std::erfc(-in[i] / std::sqrt(2.0)) / 2) < 5e-4);
  Values gradient = weights;
  for (std::int64_t i = 0; i < 20; ++i) GeluBackward<double>{in.data(), gradient.data()}(i);
  check_gradient(in, gradient, loss);
}

TEST_CASE("cross-entropy: the mean over tokens with a target; the gradient against differences") {
  constexpr std::int64_t kTokens = 4, kVocabulary = 5;
  const std::vector<std::int32_t> targets{3, -100, 0, 4};
  Values logits = random_values(8, kTokens * kVocabulary, 2), losses(kTokens), changed;
  Metrics metrics;
  const auto loss = [&] {
    changed = logits;
    CountTargets{targets.data(), &metrics, kTokens}(Lanes{}, 0);
    for_all(kTokens, CrossEntropy<double>{targets.data(), &metrics, changed.data(), losses.data(),
                                          kVocabulary});
    MeanLoss<double>{losses.data(), &metrics, kTokens}(Lanes{}, 0);
    return metrics.loss;
  };
  const double mean = loss();
  CHECK(metrics.targets == 3);
  double expected = 0;
  for (const std::size_t token : {0u, 2u, 3u}) {
    double sum = 0;
    for (std::size_t i = 0; i < kVocabulary; ++i) sum += std::exp(logits[token * kVocabulary + i]);
    expected +=
        std::log(sum) - logits[token * kVocabulary + static_cast<std::size_t>(targets[token])];
  }
  CHECK(mean == Approx(expected / 3));
  const Values gradient = changed;
  check_gradient(logits, gradient, loss);

  const std::vector<std::int32_t> none(kTokens, -100);  // as in a batch of padding
  CountTargets{none.data(), &metrics, kTokens}(Lanes{}, 0);
  for_all(kTokens,
          CrossEntropy<double>{none.data(), &metrics, changed.data(), losses.data(), kVocabulary});
  MeanLoss<double>{losses.data(), &metrics, kTokens}(Lanes{}, 0);
  CHECK(metrics.loss == 0);
  CHECK(changed == Values(changed.size(), 0));
}

TEST_CASE("rows are added by key, each once") {
  constexpr std::int64_t kRows = 6, kChannels = 3;
  const std::vector<std::int32_t> keys{2, 0, 2, 3, 0, 2};
  const Values gradient = random_values(9, kRows * kChannels);
  Values table(4 * kChannels, 1), expected = table;
  for (std::size_t row = 0; row < keys.size(); ++row)
    for (std::size_t i = 0; i < kChannels; ++i)
      expected[static_cast<std::size_t>(keys[row]) * kChannels + i] +=
          gradient[row * kChannels + i];
  for_all(kRows,
          AddRowsByKey<double>{keys.data(), gradient.data(), table.data(), kRows, kChannels});
  for (std::size_t i = 0; i < table.size(); ++i) CHECK(table[i] == Approx(expected[i]));
}

TEST_CASE("the norm of gradients, and a step of AdamW that is clipped") {
  const Values gradients{3, 0, -4, 12};  // the norm is 13
  Values parts(3), weights(4, 1), exact(4, 1), first(4), second(4);
  Metrics metrics;
  for_all(3, SquareParts<double>{gradients.data(), parts.data(), 4, 3});
  GradientNorm<double>{parts.data(), &metrics, 3}(Lanes{}, 0);
  CHECK(metrics.gradient_norm == Approx(13));
  const double rate = 0.1, decay = 0.5, beta1 = 0.9, beta2 = 0.99;
  for (std::int64_t i = 0; i < 4; ++i)
    AdamW<double>{weights.data(),
                  exact.data(),
                  first.data(),
                  second.data(),
                  gradients.data(),
                  &metrics,
                  2,
                  rate,
                  decay,
                  beta1,
                  beta2,
                  0,
                  6.5,
                  1 - beta1,
                  1 - beta2}(i);
  // The first step has the size of the rate, whatever the gradient is. The first two decay.
  CHECK(exact[0] == Approx(1 - rate * decay - rate));
  CHECK(exact[2] == Approx(1 + rate));
  CHECK(exact[3] == Approx(1 - rate));
  CHECK(weights[3] == exact[3]);
  CHECK(first[3] == Approx((1 - beta1) * 6));  // half of it
}

}  // namespace
}  // namespace gpt::test
