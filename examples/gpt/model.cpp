// SPDX-License-Identifier: Apache-2.0

#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <penstock/cuda.hpp>
#include <penstock/markers.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "arena.hpp"
#include "products.hpp"

namespace gpt {
namespace {

namespace category = penstock::markers::category;

struct ForwardRange {
  static constexpr const char* message = "forward";
  static constexpr penstock::MarkerCategory category = category::forward;
};
struct BackwardRange {
  static constexpr const char* message = "backward";
  static constexpr penstock::MarkerCategory category = category::backward;
};
struct OptimizerRange {
  static constexpr const char* message = "optimizer";
  static constexpr penstock::MarkerCategory category = category::optimizer;
};

void check_options(const ModelOptions& options) {
  for (const auto& [name, value] :
       {std::pair{"layers", options.layers}, std::pair{"heads", options.heads},
        std::pair{"channels", options.channels}, std::pair{"length", options.length},
        std::pair{"vocabulary", options.vocabulary}, std::pair{"batch", options.batch}})
    if (value < 1) throw std::invalid_argument(std::string("there are no ") + name);
  if (options.channels % options.heads != 0)
    throw std::invalid_argument(std::to_string(options.channels) +
                                " channels cannot be shared by " + std::to_string(options.heads) +
                                " heads");
}

/// The parameters, or as many gradients, by name.
template <class Value>
struct Tensors {
  struct Layer {
    Value *attention, *projection, *up, *down, *norm1, *norm2;
  };
  Value *tokens = nullptr, *positions = nullptr, *norm = nullptr;
  std::vector<Layer> layers;

  Tensors() = default;
  /// They lie as parameters_of says.
  Tensors(Value* first, const std::vector<Parameter>& parameters, std::int64_t count) {
    auto next = parameters.begin();
    const auto take = [&] { return first + (next++)->begin; };
    tokens = take();
    positions = take();
    layers.resize(static_cast<std::size_t>(count));
    for (Layer& layer : layers) {
      layer.attention = take();
      layer.projection = take();
      layer.up = take();
      layer.down = take();
    }
    for (Layer& layer : layers) {
      layer.norm1 = take();
      layer.norm2 = take();
    }
    norm = take();
  }
};

template <class T>
class ModelOf final : public Model {
  using Value = Compute<T>;

 public:
  ModelOf(const ModelOptions& options, std::uint64_t seed)
      : options_(options), parameters_(parameters_of(options)) {
    place();
    arena_.allocate();
    place();
    weights_ = Tensors<T>(rounded_, parameters_, options.layers);
    gradients_ = Tensors<Value>(gradient_, parameters_, options.layers);
    initialise(seed);
  }

  void forward(const Sequences& batch, cudaStream_t stream) override;
  void backward(const Sequences& batch, cudaStream_t stream) override;
  void update(const Update& update, cudaStream_t stream) override;

  const Metrics* metrics() const override { return metrics_; }
  const ModelOptions& options() const override { return options_; }
  std::size_t bytes() const override { return arena_.bytes(); }
  std::vector<double> weights(cudaStream_t stream) const override { return read(exact_, stream); }
  std::vector<double> gradients(cudaStream_t stream) const override {
    return read(gradient_, stream);
  }

 private:
  /// What the backward pass needs of a layer.
  struct Layer {
    T *in, *normed1, *attention, *probabilities, *mixed, *between, *normed2, *up, *active;
    Moments<T> moments1, moments2;
  };
  using LayerWeights = typename Tensors<T>::Layer;
  using LayerGradients = typename Tensors<Value>::Layer;

  std::int64_t tokens() const { return options_.batch * options_.length; }
  std::int64_t size() const { return parameters_.back().begin + parameters_.back().size(); }
  std::int64_t parts() const { return std::min<std::int64_t>(tokens(), 128); }

  void place();
  void initialise(std::uint64_t seed);
  std::vector<double> read(const Value* values, cudaStream_t stream) const;
  template <class Element>
  void require(const penstock::Tensor<Element, 2>& field) const;

  void attend(const Layer& layer, const std::int32_t* positions, cudaStream_t stream);
  void attend_backward(const Layer& layer, const std::int32_t* positions, cudaStream_t stream);
  void normalise(const T* in, const T* weight, T* out, const Moments<T>& moments,
                 cudaStream_t stream) const;
  /// From `narrow_`, the gradient of the output, to the residual's.
  void normalise_backward(const T* in, const T* weight, const Moments<T>& moments,
                          Value* weight_gradient, bool add, cudaStream_t stream) const;

  /// out = in * weight^T (+ added)
  void linear(const T* in, const T* weight, T* out, std::int64_t inputs, std::int64_t outputs,
              const T* added, cudaStream_t stream) {
    products_.multiply(stream, {tokens(), outputs, inputs}, Factor<T>{in, inputs},
                       Factor<T>{weight, inputs, true}, Result<T>{out, outputs, 0, added});
  }
  /// The gradients of weight and input; out_gradient is not in_gradient.
  void linear_backward(const T* in, const T* weight, const T* out_gradient, T* in_gradient,
                       Value* weight_gradient, std::int64_t inputs, std::int64_t outputs,
                       cudaStream_t stream) {
    products_.multiply(stream, {outputs, inputs, tokens()}, Factor<T>{out_gradient, outputs, true},
                       Factor<T>{in, inputs}, Result<Value>{weight_gradient, inputs});
    products_.multiply(stream, {tokens(), inputs, outputs}, Factor<T>{out_gradient, outputs},
                       Factor<T>{weight, inputs}, Result<T>{in_gradient, inputs});
  }

  const ModelOptions options_;
  const std::vector<Parameter> parameters_;
  Arena arena_;
  Products products_;
  Tensors<T> weights_;
  Tensors<Value> gradients_;
  std::int64_t decaying_ = 0;

  T* rounded_ = nullptr;  // the weights as products read them
  Value *exact_ = nullptr, *gradient_ = nullptr, *first_ = nullptr, *second_ = nullptr;
  std::vector<Layer> layers_;
  T *last_ = nullptr, *normed_ = nullptr, *logits_ = nullptr;
  Moments<T> moments_{};
  Value *losses_ = nullptr, *parts_ = nullptr, *scores_ = nullptr;
  // Gradients of activations: of the residual, of what has its width, and of what is wider; and
  // those of a sequence's attention.
  T *residual_ = nullptr, *narrow_ = nullptr, *wide_ = nullptr, *score_gradient_ = nullptr;
  Metrics* metrics_ = nullptr;
};

template <class T>
void ModelOf<T>::place() {
  const std::int64_t width = tokens() * options_.channels;
  const std::int64_t pairs = options_.heads * options_.length * options_.length;  // of a sequence
  const auto moments = [this] {
    Value* const mean = arena_.take<Value>(tokens());
    return Moments<T>{mean, arena_.take<Value>(tokens())};
  };
  rounded_ = arena_.take<T>(size());
  for (Value** const values : {&exact_, &gradient_, &first_, &second_})
    *values = arena_.take<Value>(size());
  layers_.resize(static_cast<std::size_t>(options_.layers));
  for (Layer& layer : layers_) {
    for (T** const values :
         {&layer.in, &layer.normed1, &layer.mixed, &layer.between, &layer.normed2})
      *values = arena_.take<T>(width);
    layer.attention = arena_.take<T>(3 * width);
    layer.probabilities = arena_.take<T>(options_.batch * pairs);
    layer.up = arena_.take<T>(4 * width);
    layer.active = arena_.take<T>(4 * width);
    layer.moments1 = moments();
    layer.moments2 = moments();
  }
  for (T** const values : {&last_, &normed_, &residual_, &narrow_}) *values = arena_.take<T>(width);
  wide_ = arena_.take<T>(4 * width);
  logits_ = arena_.take<T>(tokens() * options_.vocabulary);
  moments_ = moments();
  losses_ = arena_.take<Value>(tokens());
  scores_ = arena_.take<Value>(pairs);
  score_gradient_ = arena_.take<T>(pairs);
  parts_ = arena_.take<Value>(std::max<std::int64_t>(parts() * options_.channels, 1024));
  metrics_ = arena_.take<Metrics>(1);
}

template <class T>
void ModelOf<T>::initialise(std::uint64_t seed) {
  std::vector<Value> values(static_cast<std::size_t>(size()), 1);
  for (const Parameter& parameter : parameters_) {
    if (parameter.range == 0) continue;
    decaying_ = parameter.begin + parameter.size();
    for (std::int64_t i = parameter.begin; i < decaying_; ++i)
      values[static_cast<std::size_t>(i)] =
          static_cast<Value>(parameter.range * initial_value(seed, static_cast<std::uint64_t>(i)));
  }
  const penstock::Stream stream;
  examples::check(cudaMemcpyAsync(exact_, values.data(), values.size() * sizeof(Value),
                                  cudaMemcpyHostToDevice, stream.get()),
                  "cudaMemcpyAsync");
  penstock::for_each(stream.get(), size(), Round<T>{exact_, rounded_});
  stream.synchronize();
}

template <class T>
std::vector<double> ModelOf<T>::read(const Value* values, cudaStream_t stream) const {
  std::vector<Value> read(static_cast<std::size_t>(size()));
  examples::check(cudaMemcpyAsync(read.data(), values, read.size() * sizeof(Value),
                                  cudaMemcpyDeviceToHost, stream),
                  "cudaMemcpyAsync");
  examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return {read.begin(), read.end()};
}

template <class T>
template <class Element>
void ModelOf<T>::require(const penstock::Tensor<Element, 2>& field) const {
  if (field.extent(0) != options_.batch || field.extent(1) != options_.length)
    throw std::invalid_argument("the batch is not one of " + std::to_string(options_.batch) +
                                " sequences of " + std::to_string(options_.length) + " tokens");
}

// ---- Forward ------------------------------------------------------------------------------------

template <class T>
void ModelOf<T>::normalise(const T* in, const T* weight, T* out, const Moments<T>& moments,
                           cudaStream_t stream) const {
  for_each_row(stream, tokens(), LayerNorm<T>{in, weight, out, moments, options_.channels});
}

/// layer.attention has queries, keys and values of each token, one behind the other. The heads of a
/// sequence are one product.
template <class T>
void ModelOf<T>::attend(const Layer& layer, const std::int32_t* positions, cudaStream_t stream) {
  const std::int64_t length = options_.length, channels = options_.channels;
  const std::int64_t head = channels / options_.heads, square = length * length;
  const double scale = 1 / std::sqrt(static_cast<double>(head));
  for (std::int64_t sequence = 0; sequence < options_.batch; ++sequence) {
    const T* const queries = layer.attention + sequence * length * 3 * channels;
    const T* const keys = queries + channels;
    const T* const values = keys + channels;
    T* const probabilities = layer.probabilities + sequence * options_.heads * square;
    T* const mixed = layer.mixed + sequence * length * channels;
    products_.multiply(stream, {length, length, head, options_.heads},
                       Factor<T>{queries, 3 * channels, false, head},
                       Factor<T>{keys, 3 * channels, true, head},
                       Result<Value>{scores_, length, square}, scale);
    for_each_row(
        stream, options_.heads * length,
        AttentionSoftmax<T>{scores_, positions + sequence * length, probabilities, length});
    products_.multiply(stream, {length, head, length, options_.heads},
                       Factor<T>{probabilities, length, false, square},
                       Factor<T>{values, 3 * channels, false, head},
                       Result<T>{mixed, channels, head});
  }
}

template <class T>
void ModelOf<T>::forward(const Sequences& batch, cudaStream_t stream) {
  const penstock::ScopedRange range(ForwardRange{}, static_cast<std::uint64_t>(tokens()));
  require(batch.tokens);
  require(batch.targets);
  require(batch.position_ids);
  const std::int32_t* const positions = batch.position_ids.data_handle();
  const std::int32_t* const targets = batch.targets.data_handle();
  const std::int64_t channels = options_.channels;
  for_each_row(stream, tokens(),
               Embed<T>{batch.tokens.data_handle(), positions, weights_.tokens, weights_.positions,
                        layers_.front().in, channels});
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const LayerWeights& weights = weights_.layers[i];
    T* const out = i + 1 < layers_.size() ? layers_[i + 1].in : last_;
    normalise(layer.in, weights.norm1, layer.normed1, layer.moments1, stream);
    linear(layer.normed1, weights.attention, layer.attention, channels, 3 * channels, nullptr,
           stream);
    attend(layer, positions, stream);
    linear(layer.mixed, weights.projection, layer.between, channels, channels, layer.in, stream);
    normalise(layer.between, weights.norm2, layer.normed2, layer.moments2, stream);
    linear(layer.normed2, weights.up, layer.up, channels, 4 * channels, nullptr, stream);
    penstock::for_each(stream, tokens() * 4 * channels, Gelu<T>{layer.up, layer.active});
    linear(layer.active, weights.down, out, 4 * channels, channels, layer.between, stream);
  }
  normalise(last_, weights_.norm, normed_, moments_, stream);
  linear(normed_, weights_.tokens, logits_, channels, options_.vocabulary, nullptr, stream);
  for_each_row(stream, 1, CountTargets{targets, metrics_, tokens()});
  for_each_row(stream, tokens(),
               CrossEntropy<T>{targets, metrics_, logits_, losses_, options_.vocabulary});
  for_each_row(stream, 1, MeanLoss<Value>{losses_, metrics_, tokens()});
}

// ---- Backward -----------------------------------------------------------------------------------

template <class T>
void ModelOf<T>::normalise_backward(const T* in, const T* weight, const Moments<T>& moments,
                                    Value* weight_gradient, bool add, cudaStream_t stream) const {
  const std::int64_t channels = options_.channels;
  for_each_row(stream, parts(),
               LayerNormWeightParts<T>{in, narrow_, moments, parts_, tokens(), channels, parts()});
  penstock::for_each(stream, channels, SumParts<Value>{parts_, weight_gradient, channels, parts()});
  for_each_row(stream, tokens(),
               LayerNormBackward<T>{in, weight, narrow_, moments, residual_, channels, add});
}

/// From `narrow_`, the gradient of layer.mixed, to `wide_`, that of layer.attention.
template <class T>
void ModelOf<T>::attend_backward(const Layer& layer, const std::int32_t* positions,
                                 cudaStream_t stream) {
  const std::int64_t length = options_.length, channels = options_.channels;
  const std::int64_t heads = options_.heads, head = channels / heads, square = length * length;
  const auto scale = static_cast<Value>(1 / std::sqrt(static_cast<double>(head)));
  for (std::int64_t sequence = 0; sequence < options_.batch; ++sequence) {
    const std::int64_t place = sequence * length * 3 * channels;
    const Factor<T> queries{layer.attention + place, 3 * channels, false, head};
    const Factor<T> keys{queries.data + channels, 3 * channels, false, head};
    const Factor<T> values{keys.data + channels, 3 * channels, true, head};
    const Factor<T> mixed{narrow_ + sequence * length * channels, channels, false, head};
    const T* const probabilities = layer.probabilities + sequence * heads * square;
    const auto gradient = [&](std::int64_t part) {  // of queries, keys or values
      return Result<T>{wide_ + place + part * channels, 3 * channels, head};
    };
    products_.multiply(stream, {length, length, head, heads}, mixed, values,
                       Result<Value>{scores_, length, square});
    for_each_row(stream, heads * length,
                 AttentionSoftmaxBackward<T>{probabilities, scores_, positions + sequence * length,
                                             score_gradient_, length, scale});
    const Shape shape{length, head, length, heads};
    products_.multiply(stream, shape, Factor<T>{probabilities, length, true, square}, mixed,
                       gradient(2));
    products_.multiply(stream, shape, Factor<T>{score_gradient_, length, false, square}, keys,
                       gradient(0));
    products_.multiply(stream, shape, Factor<T>{score_gradient_, length, true, square}, queries,
                       gradient(1));
  }
}

template <class T>
void ModelOf<T>::backward(const Sequences& batch, cudaStream_t stream) {
  const penstock::ScopedRange range(BackwardRange{}, static_cast<std::uint64_t>(tokens()));
  const std::int32_t* const positions = batch.position_ids.data_handle();
  const std::int64_t channels = options_.channels;
  linear_backward(normed_, weights_.tokens, logits_, narrow_, gradients_.tokens, channels,
                  options_.vocabulary, stream);
  normalise_backward(last_, weights_.norm, moments_, gradients_.norm, false, stream);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Layer& layer = layers_[i];
    const LayerWeights& weights = weights_.layers[i];
    const LayerGradients& gradients = gradients_.layers[i];
    linear_backward(layer.active, weights.down, residual_, wide_, gradients.down, 4 * channels,
                    channels, stream);
    penstock::for_each(stream, tokens() * 4 * channels, GeluBackward<T>{layer.up, wide_});
    linear_backward(layer.normed2, weights.up, wide_, narrow_, gradients.up, channels, 4 * channels,
                    stream);
    normalise_backward(layer.between, weights.norm2, layer.moments2, gradients.norm2, true, stream);
    linear_backward(layer.mixed, weights.projection, residual_, narrow_, gradients.projection,
                    channels, channels, stream);
    attend_backward(layer, positions, stream);
    linear_backward(layer.normed1, weights.attention, wide_, narrow_, gradients.attention, channels,
                    3 * channels, stream);
    normalise_backward(layer.in, weights.norm1, layer.moments1, gradients.norm1, true, stream);
  }
  // The head has left its part in the token embedding's gradient.
  for_each_row(stream, tokens(),
               AddRowsByKey<T>{batch.tokens.data_handle(), residual_, gradients_.tokens, tokens(),
                               channels});
  examples::check(
      cudaMemsetAsync(gradients_.positions, 0,
                      static_cast<std::size_t>(options_.length * channels) * sizeof(Value), stream),
      "cudaMemsetAsync");
  for_each_row(stream, tokens(),
               AddRowsByKey<T>{positions, residual_, gradients_.positions, tokens(), channels});
}

template <class T>
void ModelOf<T>::update(const Update& update, cudaStream_t stream) {
  const penstock::ScopedRange range(OptimizerRange{}, static_cast<std::uint64_t>(update.step));
  constexpr std::int64_t kParts = 1024;
  for_each_row(stream, kParts, SquareParts<Value>{gradient_, parts_, size(), kParts});
  for_each_row(stream, 1, GradientNorm<Value>{parts_, metrics_, kParts});
  const auto value = [](double number) { return static_cast<Value>(number); };
  const auto correction = [&](double beta) {
    return value(1 - std::pow(beta, static_cast<double>(update.step)));
  };
  penstock::for_each(stream, size(),
                     AdamW<T>{rounded_, exact_, first_, second_, gradient_, metrics_, decaying_,
                              value(update.rate), value(update.decay), value(update.beta1),
                              value(update.beta2), value(update.epsilon), value(update.clip),
                              correction(update.beta1), correction(update.beta2)});
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<Parameter> parameters_of(const ModelOptions& options) {
  std::vector<Parameter> all;
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                       double range) {
    const std::int64_t begin = all.empty() ? 0 : all.back().begin + all.back().size();
    all.push_back({name, rows, columns, begin, range});
  };
  // GPT-2's standard deviation is 0.02, and less in front of the residual.
  const double usual = 0.02 * std::sqrt(3.0);
  const double residual = usual / std::sqrt(2.0 * static_cast<double>(options.layers));
  const std::int64_t channels = options.channels;
  const auto name = [](std::int64_t layer, const char* tensor) {
    return "h." + std::to_string(layer) + '.' + tensor + ".weight";
  };
  add("wte.weight", options.vocabulary, channels, usual);
  add("wpe.weight", options.length, channels, usual);
  for (std::int64_t i = 0; i < options.layers; ++i) {
    add(name(i, "attn.c_attn"), 3 * channels, channels, usual);
    add(name(i, "attn.c_proj"), channels, channels, residual);
    add(name(i, "mlp.c_fc"), 4 * channels, channels, usual);
    add(name(i, "mlp.c_proj"), channels, 4 * channels, residual);
  }
  for (std::int64_t i = 0; i < options.layers; ++i) {
    add(name(i, "ln_1"), 1, channels, 0);
    add(name(i, "ln_2"), 1, channels, 0);
  }
  add("ln_f.weight", 1, channels, 0);
  return all;
}

double initial_value(std::uint64_t seed, std::uint64_t parameter) {
  return static_cast<double>(mix(mix(seed) ^ parameter) >> 40) * 0x1p-23 - 1;
}

std::unique_ptr<Model> make_model(const ModelOptions& options, Precision precision,
                                  std::uint64_t seed) {
  check_options(options);
  switch (precision) {
    case Precision::fp32:
      return std::make_unique<ModelOf<float>>(options, seed);
    case Precision::bf16:
      return std::make_unique<ModelOf<BFloat16>>(options, seed);
    case Precision::fp64:
      break;
  }
#ifdef __CUDACC__
  throw std::invalid_argument("fp64 is for the host");
#else
  return std::make_unique<ModelOf<double>>(options, seed);
#endif
}

}  // namespace gpt
