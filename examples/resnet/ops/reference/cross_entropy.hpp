// SPDX-License-Identifier: Apache-2.0
#pragma once

// Softmax, cross entropy and the gradient of its mean over n samples, in a fixed order.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace resnet::reference {

struct LossSums {
  double loss = 0, correct = 0, samples = 0;
};

/// The sample's loss. Writes the gradient of scale * loss, unless null; it is NaN where the loss is
/// not finite. The loss is NaN for a label that is no class, and for a logit that is NaN.
template <class T>
double cross_entropy(std::int64_t classes, const T* logits, std::int32_t label, double scale,
                     T* gradient) {
  const double largest = static_cast<double>(*std::max_element(logits, logits + classes));
  double sum = 0;
  for (std::int64_t k = 0; k < classes; ++k)
    sum += std::exp(static_cast<double>(logits[k]) - largest);
  const bool valid = label >= 0 && label < classes;
  const double bad = std::numeric_limits<double>::quiet_NaN();
  const double loss = valid ? std::log(sum) + largest - static_cast<double>(logits[label]) : bad;
  const double factor = std::isfinite(loss) ? scale : bad;
  if (gradient != nullptr)
    for (std::int64_t k = 0; k < classes; ++k) {
      const double share = std::exp(static_cast<double>(logits[k]) - largest) / sum;
      gradient[k] = static_cast<T>(factor * (share - (k == label ? 1 : 0)));
    }
  return loss;
}

/// The sums over n samples. `scale` is the loss scale.
template <class T>
LossSums cross_entropy(std::int64_t n, std::int64_t classes, const T* logits,
                       const std::int32_t* labels, double scale, T* gradient) {
  LossSums sums;
  sums.samples = static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    const T* row = logits + i * classes;
    sums.loss += cross_entropy(classes, row, labels[i], scale / static_cast<double>(n),
                               gradient == nullptr ? nullptr : gradient + i * classes);
    if (std::max_element(row, row + classes) - row == labels[i]) ++sums.correct;
  }
  return sums;
}

}  // namespace resnet::reference
