// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of a GPT but for its matrix products, each as a function object for GPU and host
// (lanes.hpp). T is what activations are stored as. Sums and statistics are of the type Compute<T>.
// All matrices are row-major. A row of a batch is a token; a kernel that takes a row and lanes is
// for for_each_row, one that takes an index alone is for penstock::for_each.

#include <cmath>
#include <cstdint>

#include "lanes.hpp"

namespace gpt {

/// What a step has come to.
struct Metrics {
  double loss = 0;           ///< the mean over all tokens that have a target
  double targets = 0;        ///< the number of these tokens
  double gradient_norm = 0;  ///< of all gradients together
};

/// Row n of `out` is the sum of the embeddings of the token and of its position.
template <class T>
struct Embed {
  const std::int32_t *tokens, *positions;
  const T *token_table, *position_table;
  T* out;
  std::int64_t channels;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
    const T* token = token_table + tokens[row] * channels;
    const T* position = position_table + positions[row] * channels;
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count)
      out[row * channels + i] = T(value_of(token[i]) + value_of(position[i]));
  }
};

/// Adds to row k of `table` the rows of `gradient` whose key is k. The lanes of the first row with
/// a key add up all rows of it, so that the order of the sum is always the same.
template <class T>
struct AddRowsByKey {
  const std::int32_t* keys;
  const T* gradient;
  Compute<T>* table;
  std::int64_t rows, channels;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
    const std::int32_t key = keys[row];
    int earlier = 0;
    for (std::int64_t i = lanes.first; i < row; i += lanes.count) earlier |= keys[i] == key;
    if (lanes.max(earlier) != 0) return;
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count) {
      Compute<T> sum = 0;
      for (std::int64_t other = row; other < rows; ++other)
        if (keys[other] == key) sum += value_of(gradient[other * channels + i]);
      table[key * channels + i] += sum;
    }
  }
};

/// What the backward pass of a layer norm needs of each row.
template <class T>
struct Moments {
  Compute<T>*mean, *scale;  ///< scale: 1 / standard deviation
};

/// Layer norm without a bias.
template <class T>
struct LayerNorm {
  const T *in, *weight;
  T* out;
  Moments<T> moments;
  std::int64_t channels;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
    const T* x = in + row * channels;
    Compute<T> sum = 0, squares = 0;
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count) sum += value_of(x[i]);
    const Compute<T> mean = lanes.sum(sum) / static_cast<Compute<T>>(channels);
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count) {
      const Compute<T> difference = value_of(x[i]) - mean;
      squares += difference * difference;
    }
    const Compute<T> variance = lanes.sum(squares) / static_cast<Compute<T>>(channels);
    const Compute<T> scale = 1 / std::sqrt(variance + Compute<T>(1e-5));
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count)
      out[row * channels + i] = T((value_of(x[i]) - mean) * scale * value_of(weight[i]));
    if (lanes.first != 0) return;
    moments.mean[row] = mean;
    moments.scale[row] = scale;
  }
};

/// Writes the gradient of the input to `in_gradient`, or adds it to what is there.
template <class T>
struct LayerNormBackward {
  const T *in, *weight, *out_gradient;
  Moments<T> moments;
  T* in_gradient;
  std::int64_t channels;
  bool add;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
    const T *x = in + row * channels, *gradient = out_gradient + row * channels;
    const Compute<T> mean = moments.mean[row], scale = moments.scale[row];
    Compute<T> sum = 0, product = 0;
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count) {
      const Compute<T> weighted = value_of(gradient[i]) * value_of(weight[i]);
      sum += weighted;
      product += weighted * (value_of(x[i]) - mean) * scale;
    }
    sum = lanes.sum(sum) / static_cast<Compute<T>>(channels);
    product = lanes.sum(product) / static_cast<Compute<T>>(channels);
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count) {
      T& target = in_gradient[row * channels + i];
      const Compute<T> weighted = value_of(gradient[i]) * value_of(weight[i]);
      const Compute<T> normalised = (value_of(x[i]) - mean) * scale;
      const Compute<T> change = (weighted - sum - normalised * product) * scale;
      target = T(add ? value_of(target) + change : change);
    }
  }
};

/// The gradient of a layer norm's weight, for the tokens of one part of the batch.
template <class T>
struct LayerNormWeightParts {
  const T *in, *out_gradient;
  Moments<T> moments;
  Compute<T>* parts;  ///< part x channel
  std::int64_t tokens, channels, count;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t part) const {
    const std::int64_t begin = tokens * part / count, end = tokens * (part + 1) / count;
    for (std::int64_t i = lanes.first; i < channels; i += lanes.count) {
      Compute<T> sum = 0;
      for (std::int64_t row = begin; row < end; ++row)
        sum += value_of(out_gradient[row * channels + i]) *
               (value_of(in[row * channels + i]) - moments.mean[row]) * moments.scale[row];
      parts[part * channels + i] = sum;
    }
  }
};

/// Adds up the parts of a channel.
template <class Value>
struct SumParts {
  const Value* parts;
  Value* sums;
  std::int64_t channels, count;

  __host__ __device__ void operator()(std::int64_t channel) const {
    Value sum = 0;
    for (std::int64_t part = 0; part < count; ++part) sum += parts[part * channels + channel];
    sums[channel] = sum;
  }
};

/// What a token attends to: itself and the tokens before it, of its own document alone. Its
/// position says where that begins.
__host__ __device__ inline std::int64_t first_key(const std::int32_t* positions,
                                                  std::int64_t token) {
  return token - positions[token];
}

/// The softmax of the scores of one sequence: row h x length + t has those of head h and token t.
template <class T>
struct AttentionSoftmax {
  const Compute<T>* scores;
  const std::int32_t* positions;  ///< of this sequence
  T* probabilities;
  std::int64_t length;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
    const std::int64_t token = row % length, begin = first_key(positions, token);
    const Compute<T>* score = scores + row * length;
    Compute<T> most = score[token], sum = 0;
    for (std::int64_t i = begin + lanes.first; i <= token; i += lanes.count)
      most = most < score[i] ? score[i] : most;
    most = lanes.max(most);
    for (std::int64_t i = begin + lanes.first; i <= token; i += lanes.count)
      sum += std::exp(score[i] - most);
    sum = lanes.sum(sum);
    for (std::int64_t i = lanes.first; i < length; i += lanes.count)
      probabilities[row * length + i] =
          T(i < begin || i > token ? Compute<T>(0) : std::exp(score[i] - most) / sum);
  }
};

/// The gradient of the products of queries and keys, before they are scaled to scores.
template <class T>
struct AttentionSoftmaxBackward {
  const T* probabilities;
  const Compute<T>* gradient;     ///< of the probabilities
  const std::int32_t* positions;  ///< of this sequence
  T* product_gradient;
  std::int64_t length;
  Compute<T> scale;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
    const std::int64_t token = row % length, begin = first_key(positions, token);
    const T* probability = probabilities + row * length;
    Compute<T> sum = 0;
    for (std::int64_t i = begin + lanes.first; i <= token; i += lanes.count)
      sum += value_of(probability[i]) * gradient[row * length + i];
    sum = lanes.sum(sum);
    for (std::int64_t i = lanes.first; i < length; i += lanes.count)
      product_gradient[row * length + i] =
          T(i < begin || i > token
                ? Compute<T>(0)
                : value_of(probability[i]) * (gradient[row * length + i] - sum) * scale);
  }
};

/// GPT-2's GELU: by the hyperbolic tangent.
template <class Value>
struct GeluOf {
  static constexpr Value kRoot = Value(0.79788456080286535588);  // of 2 / pi
  static constexpr Value kCubic = Value(0.044715);

  static __host__ __device__ Value value(Value x) {
    return Value(0.5) * x * (1 + std::tanh(kRoot * (x + kCubic * x * x * x)));
  }
  static __host__ __device__ Value slope(Value x) {
    const Value tanh = std::tanh(kRoot * (x + kCubic * x * x * x));
    return Value(0.5) * (1 + tanh) +
           Value(0.5) * x * (1 - tanh * tanh) * kRoot * (1 + 3 * kCubic * x * x);
  }
};

template <class T>
struct Gelu {
  const T* in;
  T* out;

  __host__ __device__ void operator()(std::int64_t i) const {
    out[i] = T(GeluOf<Compute<T>>::value(value_of(in[i])));
  }
};

/// Turns the gradient of the output into that of the input.
template <class T>
struct GeluBackward {
  const T* in;
  T* gradient;

  __host__ __device__ void operator()(std::int64_t i) const {
    gradient[i] = T(value_of(gradient[i]) * GeluOf<Compute<T>>::slope(value_of(in[i])));
  }
};

/// Counts the tokens that have a target; one row.
struct CountTargets {
  const std::int32_t* targets;
  Metrics* metrics;
  std::int64_t tokens;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t) const {
    int count = 0;
    for (std::int64_t i = lanes.first; i < tokens; i += lanes.count) count += targets[i] >= 0;
    count = lanes.sum(count);
    if (lanes.first == 0) metrics->targets = count;
  }
};

/// The loss of a token, 0 if it has no target (penstock::Packing then writes -100). Turns its
/// logits into their gradients.
template <class T>
struct CrossEntropy {
  const std::int32_t* targets;
  const Metrics* metrics;  ///< the mean is over its `targets`
  T* logits;
  Compute<T>* losses;
  std::int64_t vocabulary;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
    T* logit = logits + row * vocabulary;
    const std::int32_t target = targets[row];
    if (target < 0) {
      for (std::int64_t i = lanes.first; i < vocabulary; i += lanes.count) logit[i] = T(0.0f);
      if (lanes.first == 0) losses[row] = 0;
      return;
    }
    const Compute<T> wanted = value_of(logit[target]);  // read by all lanes before sum() returns
    Compute<T> most = wanted, sum = 0;
    for (std::int64_t i = lanes.first; i < vocabulary; i += lanes.count)
      most = most < value_of(logit[i]) ? value_of(logit[i]) : most;
    most = lanes.max(most);
    for (std::int64_t i = lanes.first; i < vocabulary; i += lanes.count)
      sum += std::exp(value_of(logit[i]) - most);
    sum = lanes.sum(sum);
    const Compute<T> share = 1 / static_cast<Compute<T>>(metrics->targets);
    for (std::int64_t i = lanes.first; i < vocabulary; i += lanes.count)
      logit[i] = T((std::exp(value_of(logit[i]) - most) / sum - (i == target ? 1 : 0)) * share);
    if (lanes.first == 0) losses[row] = std::log(sum) + most - wanted;
  }
};

/// The mean of the losses; one row.
template <class Value>
struct MeanLoss {
  const Value* losses;
  Metrics* metrics;
  std::int64_t tokens;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t) const {
    double sum = 0;
    for (std::int64_t i = lanes.first; i < tokens; i += lanes.count)
      sum += static_cast<double>(losses[i]);
    sum = lanes.sum(sum);
    if (lanes.first == 0) metrics->loss = metrics->targets > 0 ? sum / metrics->targets : 0;
  }
};

/// The sum of the squares of one part of the gradients.
template <class Value>
struct SquareParts {
  const Value* gradients;
  Value* parts;
  std::int64_t size, count;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t part) const {
    const std::int64_t end = size * (part + 1) / count;
    Value sum = 0;
    for (std::int64_t i = size * part / count + lanes.first; i < end; i += lanes.count)
      sum += gradients[i] * gradients[i];
    sum = lanes.sum(sum);
    if (lanes.first == 0) parts[part] = sum;
  }
};

/// The norm of all gradients; one row.
template <class Value>
struct GradientNorm {
  const Value* parts;
  Metrics* metrics;
  std::int64_t count;

  __host__ __device__ void operator()(const Lanes& lanes, std::int64_t) const {
    double sum = 0;
    for (std::int64_t i = lanes.first; i < count; i += lanes.count)
      sum += static_cast<double>(parts[i]);
    sum = lanes.sum(sum);
    if (lanes.first == 0) metrics->gradient_norm = std::sqrt(sum);
  }
};

/// A step of AdamW for one parameter: first the gradients are scaled down to a norm of at most
/// `clip`. Matrices, which come first, decay; weights of layer norms do not.
template <class T>
struct AdamW {
  using Value = Compute<T>;
  T* weights;
  Value *master, *first, *second;  ///< the exact weights, and the moments of their gradients
  const Value* gradients;
  const Metrics* metrics;
  std::int64_t decaying;
  Value rate, decay, beta1, beta2, epsilon, clip;
  Value correction1, correction2;  ///< 1 - beta^step

  __host__ __device__ void operator()(std::int64_t i) const {
    const Value norm = static_cast<Value>(metrics->gradient_norm);
    const Value gradient = gradients[i] * (norm > clip ? clip / norm : 1);
    first[i] = beta1 * first[i] + (1 - beta1) * gradient;
    second[i] = beta2 * second[i] + (1 - beta2) * gradient * gradient;
    const Value step = first[i] / correction1 / (std::sqrt(second[i] / correction2) + epsilon);
    const Value kept = i < decaying ? master[i] * (1 - rate * decay) : master[i];
    master[i] = kept - rate * step;
    weights[i] = T(master[i]);
  }
};

/// Rounds the exact weights to what the products read.
template <class T>
struct Round {
  const Compute<T>* from;
  T* to;
  __host__ __device__ void operator()(std::int64_t i) const { to[i] = T(from[i]); }
};

}  // namespace gpt
