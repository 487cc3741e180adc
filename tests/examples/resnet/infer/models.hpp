// SPDX-License-Identifier: Apache-2.0
#pragma once

// A network whose batch norms do something, with images, for tests of what is made of it:
//
//   Unfolded unfolded("resnet8", {4, 3, 32, 32});
//   const Model model = unfolded.folded();
//   const std::vector<float> wanted = unfolded.logits();
//   const std::vector<float> logits = run(model, {.batches = {4}}, unfolded.images, 4);

#include <cstdint>
#include <string>
#include <vector>

#include "../../../../examples/resnet/infer/network.hpp"
#include "../training.hpp"

namespace resnet::test {

struct Unfolded {
  /// Gamma and beta as test_parameters has them; means within 0.5, variances from 0.1 to 2.5.
  Unfolded(const std::string& name, const Extents& extents)
      : training({architecture_of(name, 10), extents}), images(test_images(extents)) {
    state = training.state();
    const ParameterTable& table = training.network.table();
    for (std::size_t s = 0; s < table.statistics().size(); ++s) {
      const Statistic& statistic = table.statistics()[s];
      const bool mean = statistic.name.ends_with("running_mean");
      for (std::int64_t c = 0; c < statistic.channels; ++c) {
        const double random = uniform(500 + s, static_cast<std::uint64_t>(c));
        state.statistics[size(statistic.offset + c)] =
            static_cast<float>(mean ? 0.5 * random : 1.3 + 1.2 * random);
      }
    }
    training.network.set_state(state, training.stream.get());
  }

  std::vector<float> logits() {
    training.infer();
    return training.logits();
  }
  Model folded() const {
    const NetworkOptions& options = training.network.options();
    return fold(options.architecture, options.images, tensors_of(state, training.network.table()));
  }

  Training training;
  std::vector<float> images;
  NetworkState state;
};

/// Of the first n images, in a context of its own.
inline std::vector<float> run(const Model& model, const InferenceOptions& options,
                              const std::vector<float>& images, std::int64_t n) {
  const penstock::Stream stream;
  const InferenceNetwork network(model, options, stream.get());
  InferenceContext context(network);
  Extents extents = network.image();
  extents.n = n;
  DeviceArray<float> pixels(extents.count()), logits(n * network.classes());
  pixels.set({images.begin(), images.begin() + extents.count()}, stream.get());
  context.run({extents}, pixels.data(), logits.data(), stream.get());
  return logits.get(stream.get());
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

inline double largest(const std::vector<float>& values) {
  return largest_difference(values, std::vector<float>(values.size()));
}

}  // namespace resnet::test
