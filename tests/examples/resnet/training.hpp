// SPDX-License-Identifier: Apache-2.0
#pragma once

// A network on the linked operations with one batch on the device, for tests:
//
//   Training training({architecture_of("resnet8", 10), {8, 3, 16, 16}});
//   training.step(sgd);
//   CHECK(training.state().step == 1);

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <penstock/cuda.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../../../examples/resnet/model/device_array.hpp"
#include "../../../examples/resnet/model/network.hpp"
#include "arrays.hpp"
#include "random.hpp"

namespace resnet::test {

/// Images uniform in [-1, 1), in nchw, as make_vectors.py has them.
inline std::vector<float> test_images(const Extents& extents, std::uint64_t seed = 1) {
  return random_values<float>(seed, extents.count());
}

inline std::vector<std::int32_t> test_labels(std::int64_t n, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < n; ++i)
    labels.push_back(static_cast<std::int32_t>(mix(mix(2) ^ static_cast<std::uint64_t>(i)) %
                                               static_cast<std::uint64_t>(classes)));
  return labels;
}

/// Element i of parameter p at the start, as make_vectors.py has it: it says why biases push.
inline double test_parameter(const Parameter& parameter, std::size_t p, std::int64_t i) {
  const double value = uniform(1000 + p, static_cast<std::uint64_t>(i));
  const auto& shape = parameter.shape;
  if (shape.size() == 4)
    return value * std::sqrt(6.0 / static_cast<double>(shape[0] * shape[2] * shape[3]));
  if (parameter.name.starts_with("fc.")) return value * 0.03125;
  if (parameter.name.ends_with("weight")) return 0.25 + 0.0625 * value;
  const bool pushes = parameter.name.find(".downsample.") == std::string::npos;
  return (pushes ? (i % 2 == 0 ? 0.75 : -0.75) : 0) + 0.03125 * value;
}

/// All of them, as a block.
inline std::vector<float> test_parameters(const ParameterTable& table) {
  std::vector<float> block(size(table.all()));
  for (std::size_t p = 0; p < table.parameters().size(); ++p) {
    const Parameter& parameter = table.parameters()[p];
    for (std::int64_t i = 0; i < parameter.count(); ++i)
      block[size(table.place(parameter, i))] = static_cast<float>(test_parameter(parameter, p, i));
  }
  return block;
}

inline const SgdOptions test_sgd{{Decay::constant, 0.005f, 0, 10}, 0.9f, 5e-4f, 2000};

class Training {
 public:
  explicit Training(const NetworkOptions& options, const Settings& settings = {})
      : Training(options, make_operations(settings)) {}

  Training(const NetworkOptions& options, std::unique_ptr<Operations> operations)
      : ops(std::move(operations)),
        network(options, *ops),
        images_(network.input().count() * static_cast<std::int64_t>(ops->element_bytes())),
        labels_(options.images.n) {
    start(test_parameters(network.table()));
    set_batch(test_images(options.images),
              test_labels(options.images.n, options.architecture.classes));
  }

  void start(std::vector<float> parameters) {
    NetworkState state;
    state.parameters = std::move(parameters);
    state.momenta.resize(state.parameters.size());
    state.statistics = network.table().initial_statistics();
    state.loss_scale.scale = network.options().initial_loss_scale;
    network.set_state(state, stream.get());
  }

  /// Images in nchw, without padding.
  void set_batch(const std::vector<float>& images, const std::vector<std::int32_t>& labels) {
    const Extents& in = network.input();
    const std::int64_t channels = network.options().images.c, pixels = in.h * in.w;
    std::vector<float> padded(size(in.count()));
    for (std::int64_t n = 0; n < in.n; ++n)
      std::copy_n(images.begin() + n * channels * pixels, channels * pixels,
                  padded.begin() + n * in.c * pixels);
    if (ops->settings().format == Format::nhwc) padded = transposed(padded, in.n, in.c, pixels);
    DeviceArray<float> floats(in.count());
    floats.set(padded, stream.get());
    ops->from_float(floats.data(), images_.data(), in.count(), stream.get());
    labels_.set(labels, stream.get());
    stream.synchronize();  // before `floats` goes
  }

  void forward(std::int64_t n) {
    network.forward(images_.data(), n, stream.get());
    network.loss(labels_.data(), stream.get());
  }
  void gradients(std::int64_t n) {
    forward(n);
    network.backward(stream.get());
  }
  void gradients() { gradients(network.input().n); }
  void step(const SgdOptions& sgd = test_sgd) {
    gradients();
    network.step(sgd, stream.get());
  }
  void infer() { network.infer(images_.data(), network.input().n, stream.get()); }

  NetworkState state() const { return network.state(stream.get()); }
  std::vector<float> logits() const {
    std::vector<float> values(size(network.input().n * network.options().architecture.classes));
    return copy(network.logits(), std::move(values));
  }
  /// Since the last call.
  Metrics metrics() {
    const Metrics now = copy(network.metrics(), std::vector<Metrics>(1)).front();
    network.clear_metrics(stream.get());
    return now;
  }

  std::unique_ptr<Operations> ops;
  penstock::Stream stream;
  Network network;

 private:
  template <class T>
  std::vector<T> copy(const T* device, std::vector<T> values) const {
    examples::check(cudaMemcpyAsync(values.data(), device, values.size() * sizeof(T),
                                    cudaMemcpyDeviceToHost, stream.get()),
                    "cudaMemcpyAsync");
    stream.synchronize();
    return values;
  }

  DeviceArray<std::byte> images_;  // of the operations' precision
  DeviceArray<std::int32_t> labels_;
};

/// Are all of these the same bits? (NaN equals NaN; the two zeros differ.)
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](float left, float right) {
           return std::bit_cast<std::uint32_t>(left) == std::bit_cast<std::uint32_t>(right);
         });
}

inline bool same_bits(const NetworkState& a, const NetworkState& b) {
  return same_bits(a.parameters, b.parameters) && same_bits(a.momenta, b.momenta) &&
         same_bits(a.statistics, b.statistics) && a.step == b.step &&
         a.batches_tracked == b.batches_tracked && a.loss_scale.scale == b.loss_scale.scale &&
         a.loss_scale.good_steps == b.loss_scale.good_steps &&
         a.loss_scale.skipped == b.loss_scale.skipped;
}

}  // namespace resnet::test
